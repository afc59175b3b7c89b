"""The publishes and acknowledgements of a tx channel that are not committed yet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, takewhile

from warren.amqp.errors import PreconditionFailed
from warren.broker.deduplication import Seen
from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT_ROUND, ON_ITS_WAY
from warren.broker.queue import Queue
from warren.broker.safety import Safety
from warren.session.deliveries import Deliveries
from warren.session.roles import WorkingChannel

PUBLISH_WORK = SETTLE_WORK = 2
NOTE_WORK = 1


class Transaction:
    """A transaction waits in memory, so it has limits. Beyond them the channel is closed, which rolls it
    back. After a commit or rollback the same object serves the next transaction.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.settled_up_to = 0  # all outstanding deliveries up to this tag are noted as settled
        self.rollback()

    def __repr__(self) -> str:
        return f"<Transaction of {len(self.publishes)} publishes, {len(self.settled)} deliveries settled>"

    def publish(self, message: Message, queues: list[Queue], seen: Seen | None, *, mandatory: bool) -> None:
        self.bytes += len(message.body) + len(message.properties)
        if len(self.publishes) >= self.messages_max:
            raise PreconditionFailed(
                f"transaction is larger than configured max size {self.messages_max} messages"
            )
        if self.bytes > self.bytes_max:
            raise PreconditionFailed(f"transaction is larger than configured max size {self.bytes_max} bytes")
        self.publishes.append((message, queues, seen, mandatory))

    def settle(self, tag: int, fate: bool | None) -> None:
        """Note that a delivery is acked (`fate` is None) or rejected: then it says whether to requeue."""
        self.settled.setdefault(tag, fate)

    def settle_up_to(self, last_tag: int, fate: bool | None, deliveries: Deliveries) -> Iterator[int]:
        """Do the same for all outstanding deliveries up to this tag, step by step, and yield the cost of
        each. Those up to `settled_up_to` are noted already.
        """
        noted, self.settled_up_to = self.settled_up_to, max(last_tag, self.settled_up_to)
        for tag in takewhile(last_tag.__ge__, deliveries.span(noted)):
            if deliveries.is_outstanding(tag):
                self.settle(tag, fate)
            yield NOTE_WORK

    def commit(self, channel: WorkingChannel) -> Iterator[int]:
        """Carry out the transaction step by step. It is not atomic: other clients may see a part of it
        meanwhile, as with RabbitMQ's transactions over several queues.
        """
        publishes, settled = self.publishes, self.settled
        self.rollback()
        now_ms = channel.connection.node.clock.refresh()
        unsafe: dict[Safety, bool] = {}
        for message, queues, seen, mandatory in publishes:
            alive = [standing for queue in queues if (standing := queue.stands()) is not None]
            if not all(queue.is_here for queue in alive):
                channel.leader_changed()  # this is not carried out, nor what follows
                return
            for work in chain(
                channel.enqueuing(message.came_at(now_ms), alive, seen, mandatory), [PUBLISH_WORK]
            ):
                # Take these over here: the end of a batch, which may come before the next step, forgets them.
                for safety, longer in channel.confirms.take_unsafe().items():
                    unsafe[safety] = longer or unsafe.get(safety, False)
                yield work
        for tag, fate in settled.items():
            entry = channel.deliveries.take(tag)
            assert entry is not None, "only outstanding tags are noted, and nobody else settles them"
            if fate is None:
                channel.release(entry)
            else:
                channel.give_back(entry, requeue=fate)
            yield SETTLE_WORK
        for safety, longer in unsafe.items():
            channel.confirms.note(AFTER_NEXT_ROUND if longer else ON_ITS_WAY, safety)
        channel.wake_consumers()

    def rollback(self) -> None:
        """Forget the publishes and acknowledgements. The messages delivered stay out with the client."""
        self.publishes: list[tuple[Message, list[Queue], Seen | None, bool]] = []  # the last says: mandatory
        self.settled: dict[int, bool | None] = {}  # by delivery tag: None for acked, else whether to requeue
        self.settled_up_to = 0
        self.bytes = 0  # of all publishes
