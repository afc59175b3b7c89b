"""A shard that waits: this node leads it, and too few of its members are there, so nothing may be delivered
and nothing can be confirmed.

Most often that is over in a moment, when etcd has taken out the member that is gone. If it lasts, the node is
cut off, or etcd is: clients that wait get an answer, and whoever comes is told why. Another node may serve
the queues by then, so consumers are cancelled. What they have stays with them: if this node leads on, their
acks count, and if not, the next leader delivers it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from warren.broker.node import Node
from warren.broker.queue import Hold, Queue
from warren.broker.safety import Safety
from warren.broker.vhost import TELL_WORK, Vhost

PATIENCE_SECONDS = 5.0
NO_LEADER = "has no leader now"


class WaitingShard:
    """Lasts until its `end`."""

    def __init__(self, node: Node, queues: Iterable[Queue], safety: Safety, why: Callable[[], str]) -> None:
        self.node = node
        self.safety = safety
        self.why = why  # what to tell of a queue: "has no leader now: …"
        self.hold = Hold(queues)
        self.has_told = False
        self.unavailable: list[tuple[Queue, Vhost]] = []
        self.timer = node.world.call_later(PATIENCE_SECONDS, self._tell)

    def add(self, queue: Queue) -> None:
        """A queue of the shard is there, which was not when it began to wait."""
        self.hold.add(queue)
        if self.has_told:
            self._make_unavailable([queue], self.why())

    def _tell(self) -> None:
        self.has_told = True
        reason = self.why()
        self._make_unavailable(self.hold.queues, reason)
        for client in list(self.node.clients.values()):
            client.safety_ended(self.safety, f"a queue {reason}: publish again what is not confirmed")
        self.node.turns.spread(self._telling_consumers(), self.node.end_turn)

    def _telling_consumers(self) -> Iterator[int]:
        """The members may be there again before all are told."""
        for queue, _ in self.unavailable[:]:
            for consumer in queue.consumers:
                if queue.unavailable and not consumer.cancelled:
                    consumer.queue_is_unavailable(f"{queue.what} {queue.unavailable}")
                yield TELL_WORK

    def _make_unavailable(self, queues: Iterable[Queue], reason: str) -> None:
        """A vhost looks at each route while one of its queues cannot be used, also at those that channels
        have taken before.
        """
        for queue in queues:
            vhost = self.node.vhosts.get(queue.vhost)
            if vhost is not None:
                queue.unavailable = reason
                self.unavailable.append((queue, vhost))
                vhost.elsewhere += 1
                vhost.version.bump()

    def end(self) -> None:
        """The members are there again, or another node leads."""
        self.timer.cancel()
        for queue, vhost in self.unavailable:
            queue.unavailable = ""
            vhost.elsewhere -= 1
        self.unavailable.clear()
        self.hold.end()
