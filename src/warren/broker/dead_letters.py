"""Messages that die in a queue go on to its dead-letter exchange.

They are not lost on the way: a message that has to survive leaves its old queue's log only when it is on
disk in the new ones. If the broker ends in between, it is in both.
"""

from __future__ import annotations

from functools import lru_cache

from warren.amqp.table import encode_name
from warren.broker.clock import Clock
from warren.broker.death import Death, Letter, Reason, write_letter
from warren.broker.entry import Entry
from warren.broker.events import Events, MessageDeadLettered
from warren.broker.exchange.exchange import Exchange
from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT, ON_ITS_WAY
from warren.broker.queue import Queue
from warren.broker.store import Store
from warren.broker.surroundings import Deathbed
from warren.broker.vhost import Vhost

NAMES_CACHED_MAX = 1_000
LETTER_WORK = 25


class Handover:
    """Entries that leave their queue for good once what was written after them is safe."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gathered: dict[int, list[tuple[Deathbed, Entry]]] = {}

    def forget_when_safe(self, queue: Deathbed, entry: Entry) -> None:
        number = self.store.gathering
        if number not in self.gathered:
            self.gathered[number] = []
            self.store.when_safe(self._safe)
        self.gathered[number].append((queue, entry))

    def _safe(self, number: int) -> None:
        for earlier in [known for known in self.gathered if known <= number]:
            for queue, entry in self.gathered.pop(earlier):
                queue.forget(entry)


class DeadLetters:
    """Of one vhost."""

    def __init__(self, vhost: Vhost, clock: Clock, events: Events, handover: Handover) -> None:
        self.vhost = vhost
        self.clock = clock
        self.events = events
        self.handover = handover
        self.last_route: tuple[int, Exchange, bytes] | None = None
        self.last_targets: list[Queue] = []

    def forget_when_safe(self, queue: Deathbed, entry: Entry) -> None:
        """The queue forgets the entry once all that was written until now is safe."""
        self.handover.forget_when_safe(queue, entry)

    def bury(self, queue: Deathbed, entry: Entry, reason: Reason) -> None:
        """An entry, which nobody holds any more, leaves its queue."""
        if self.send(queue, entry.message, reason):
            self.handover.forget_when_safe(queue, entry)
        else:
            queue.forget(entry)

    def send(self, queue: Deathbed, message: Message, reason: Reason) -> bool:
        """Whether it is on its way to disk, and not safe before it is there."""
        name = queue.rules.dead_letter_exchange
        exchange = None if name is None else self.vhost.exchanges.get(name)
        if self.events.died:
            self.events.emit(MessageDeadLettered(self.vhost.name, queue.name, message, str(reason), name))
        if exchange is None:
            return False
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
        if exchange.seen is not None and exchange.seen.drops(letter_message, self.clock.time_ms):
            return False
        return self._publish(letter_message, self._targets(exchange, letter_message, keys, letter, reason))

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
        """Many that die together go the same way."""
        known = (self.vhost.version.number, exchange, routing_key)
        if known != self.last_route:
            self.last_route, self.last_targets = known, self.vhost.route(exchange, routing_key)
        return self.last_targets

    def _publish(self, message: Message, targets: list[Queue]) -> bool:
        self.vhost.surroundings.turns.budget.left -= LETTER_WORK + len(targets)
        results = [target.publish(message) for target in targets]
        return ON_ITS_WAY in results or AFTER_NEXT in results


@lru_cache(NAMES_CACHED_MAX)
def _wire(name: str) -> bytes:
    return encode_name(name)
