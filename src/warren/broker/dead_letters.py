"""Sends messages that die in a queue on to its dead-letter exchange.

No message is lost on the way: a persistent one leaves its old queue's log only when it is safe in the logs of
the new queues. If the broker ends in between, the message is in both. If a new queue gets another leader
before it has said that the message is safe there, it is sent that message again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial

from warren.amqp.table import encode_name
from warren.broker.clock import Clock
from warren.broker.death import Death, Letter, Reason, write_letter
from warren.broker.entry import Entry
from warren.broker.events import Events, MessageDeadLettered
from warren.broker.exchange.exchange import Exchange
from warren.broker.message import Message, enqueue_work
from warren.broker.post import Sent, Target, publish_to
from warren.broker.queue import Queue
from warren.broker.safety import Safety
from warren.broker.surroundings import Deathbed
from warren.broker.turns import QUEUES_A_STEP, Turns
from warren.broker.vhost import Vhost

NAMES_CACHED_MAX = 1_000
LETTER_WORK = 25  # units of work for a dead letter, without its way into its target queues
FORGET_WORK = 1  # the same for forgetting it in its old queue


class Leaving:
    """An entry whose message is on its way to other queues."""

    __slots__ = ("entry", "queue", "sent", "unsafe")

    def __init__(self, queue: Deathbed, entry: Entry, sent: Sent) -> None:
        self.queue = queue  # that the entry is in until then
        self.entry = entry
        self.sent = sent
        self.unsafe = 0  # how many safeties have not said yet that the message is safe


class Handover:
    """Lets queues forget entries as soon as the entries' messages are safe elsewhere."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.gathered: dict[tuple[Safety, int], deque[Leaving]] = {}  # who waits for which round

    def forget_when_safe(self, queue: Deathbed, entry: Entry, sent: Sent) -> None:
        """Have the queue forget the entry when the message that was sent is safe wherever it went."""
        if sent.places:
            self._wait(Leaving(queue, entry, sent), sent)
        else:
            queue.forget(entry)

    def sending(
        self, queue: Deathbed, entry: Entry, message: Message, targets: Sequence[Target]
    ) -> Iterator[int]:
        """Send a message to its queues step by step, and have the queue that it comes from forget the entry
        when it is safe there. Yield the cost of each step.
        """
        leaving = Leaving(queue, entry, Sent(message, {}))
        leaving.unsafe = 1  # until the message is sent
        work = enqueue_work(message, len(targets)) // (1 + len(targets))
        for begun in range(0, len(targets), QUEUES_A_STEP):
            step = targets[begun : begun + QUEUES_A_STEP]
            self._send(leaving, step)
            yield work * len(step)
        self._goes(leaving)

    def _send(self, leaving: Leaving, targets: Iterable[Target]) -> None:
        sent = publish_to(targets, leaving.sent.message)
        for safety, queues in sent.places.items():
            leaving.sent.places.setdefault(safety, []).extend(queues)
        self._wait(leaving, sent)

    def _wait(self, leaving: Leaving, sent: Sent) -> None:
        leaving.unsafe += len(sent.places)
        for safety in sent.places:
            point = (safety, safety.gathering)
            if point not in self.gathered:
                self.gathered[point] = deque()
                safety.when_safe(partial(self._is_safe, safety), partial(self._has_ended, point))
            self.gathered[point].append(leaving)

    def _is_safe(self, safety: Safety, number: int) -> None:
        self.turns.spread(self._forgetting((safety, number)))

    def _forgetting(self, point: tuple[Safety, int]) -> Iterator[int]:
        waiting = self.gathered.get(point)
        while waiting:
            self._goes(waiting.popleft())
            yield FORGET_WORK
        self.gathered.pop(point, None)

    def _goes(self, leaving: Leaving) -> None:
        """One of the safeties has nothing more to say."""
        leaving.unsafe -= 1
        if not leaving.unsafe:
            leaving.queue.forget(leaving.entry)

    def _has_ended(self, point: tuple[Safety, int]) -> None:
        """A target has another leader, or is deleted. In a turn to come the model knows who leads it now."""
        waiting = self.gathered.pop(point, None)
        if waiting:
            self.turns.later(lambda: self.turns.spread(self._sending_again(point[0], waiting)))

    def _sending_again(self, ended: Safety, waiting: Iterable[Leaving]) -> Iterator[int]:
        """Send the messages again to the queues that this safety spoke for, as far as they exist. If the old
        queue of an entry has another leader now, that one has the entry and sends it.
        """
        for leaving in waiting:
            targets = leaving.sent.places.pop(ended, [])
            if not leaving.queue.deleted:
                self._send(leaving, targets)
                self._goes(leaving)
            yield LETTER_WORK + enqueue_work(leaving.sent.message, len(targets))


class DeadLetters:
    """Routes the dead letters of one vhost."""

    def __init__(self, vhost: Vhost, clock: Clock, events: Events, handover: Handover) -> None:
        self.vhost = vhost
        self.clock = clock
        self.events = events
        self.handover = handover
        self.last_route: tuple[int, Exchange, bytes] | None = None  # vhost's version, exchange, routing key
        self.last_targets: list[Queue] = []  # the queues that `last_route` led to

    def sending(
        self, queue: Deathbed, entry: Entry, message: Message, targets: Sequence[Target]
    ) -> Iterator[int]:
        return self.handover.sending(queue, entry, message, targets)

    def bury(self, queue: Deathbed, entry: Entry, reason: Reason) -> None:
        """Send the entry's message on; its queue forgets the entry when the message is safe there."""
        self.handover.forget_when_safe(queue, entry, self.send(queue, entry.message, reason))

    def send(self, queue: Deathbed, message: Message, reason: Reason) -> Sent:
        """Send a message on to the queue's dead-letter exchange, if there is one."""
        name = queue.rules.dead_letter_exchange
        exchange = None if name is None else self.vhost.exchanges.get(name)
        if self.events.died:
            self.events.emit(MessageDeadLettered(self.vhost.name, queue.name, message, str(reason), name))
        if exchange is None:
            return Sent(message, {})
        new_key = queue.rules.dead_letter_routing_key
        death = Death(queue.name, reason, self.clock.time_ms)
        letter = write_letter(message, death, drop_copies=new_key is not None)
        keys = letter.keys if new_key is None else [new_key]
        letter_message = Message(
            exchange.wire_name,
            message.routing_key if new_key is None else _wire(new_key),
            letter.properties,
            message.body,
            message.persistent,
            self.clock.time_ms,
            True,
        )
        seen = exchange.seen
        if seen is not None and seen.has(letter_message, self.clock.time_ms):
            return Sent(letter_message, {})
        targets = self._targets(exchange, letter_message, keys, letter, reason)
        sent = self._publish(letter_message, targets)
        if seen is not None:
            seen.note(letter_message, self.clock.time_ms, elsewhere=sent.places)
        return sent

    def _targets(
        self, exchange: Exchange, message: Message, keys: list[str], letter: Letter, reason: Reason
    ) -> list[Queue]:
        if len(keys) > 1 or self.vhost.depends_on_properties(exchange):
            targets = self.vhost.walk(exchange, keys, message.decode_properties())
        else:
            targets = self._route(exchange, message.routing_key)
        if reason is Reason.REJECTED:
            return targets
        return [target for target in targets if not letter.closes_cycle(target.name)]

    def _route(self, exchange: Exchange, routing_key: bytes) -> list[Queue]:
        """The queues for this key, remembered for the next: messages that die together share a route."""
        known = (self.vhost.version.number, exchange, routing_key)
        if known != self.last_route:
            self.last_route, self.last_targets = known, self.vhost.route(exchange, routing_key)
        return self.last_targets

    def _publish(self, message: Message, targets: list[Queue]) -> Sent:
        self.vhost.surroundings.turns.budget.left -= LETTER_WORK + enqueue_work(message, len(targets))
        return publish_to(targets, message)


@lru_cache(NAMES_CACHED_MAX)
def _wire(name: str) -> bytes:
    return encode_name(name)
