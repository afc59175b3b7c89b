"""Sends messages that die in a queue on to its dead-letter exchange.

No message is lost on the way: a persistent one leaves its old queue's log only when it is safe in the logs of
the new queues. If the broker ends in between, the message is in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache, partial

from warren.amqp.table import encode_name
from warren.broker.clock import Clock
from warren.broker.death import Death, Letter, Reason, write_letter
from warren.broker.entry import Entry
from warren.broker.events import Events, MessageDeadLettered
from warren.broker.exchange.exchange import Exchange
from warren.broker.message import Message
from warren.broker.queue import Queue, publish_to
from warren.broker.safety import Safety
from warren.broker.surroundings import Deathbed
from warren.broker.vhost import Vhost

NAMES_CACHED_MAX = 1_000
LETTER_WORK = 25  # units of work for a dead letter, without its target queues


class Handover:
    """Lets queues forget entries as soon as the entries' messages are safe elsewhere."""

    def __init__(self) -> None:
        # by safety and round: the entries that wait for this round, and the safeties to wait for after it
        self.gathered: dict[tuple[Safety, int], list[tuple[Deathbed, Entry, list[Safety]]]] = {}

    def forget_when_safe(self, queue: Deathbed, entry: Entry, places: Iterable[Safety]) -> None:
        """Have the queue forget the entry when all that was written so far is safe at each of `places`."""
        left = list(places)
        if not left:
            queue.forget(entry)
            return
        safety = left.pop()
        point = (safety, safety.gathering)
        if point not in self.gathered:
            self.gathered[point] = []
            safety.when_safe(partial(self._is_safe, safety))
        self.gathered[point].append((queue, entry, left))

    def _is_safe(self, safety: Safety, number: int) -> None:
        points = [known for known in self.gathered if known[0] is safety and known[1] <= number]
        for point in points:
            for queue, entry, left in self.gathered.pop(point):
                self.forget_when_safe(queue, entry, left)


class DeadLetters:
    """Routes the dead letters of one vhost."""

    def __init__(self, vhost: Vhost, clock: Clock, events: Events, handover: Handover) -> None:
        self.vhost = vhost
        self.clock = clock
        self.events = events
        self.handover = handover
        self.last_route: tuple[int, Exchange, bytes] | None = None  # vhost's version, exchange, routing key
        self.last_targets: list[Queue] = []  # the queues that `last_route` led to

    def forget_when_safe(self, queue: Deathbed, entry: Entry, places: Iterable[Safety]) -> None:
        self.handover.forget_when_safe(queue, entry, places)

    def bury(self, queue: Deathbed, entry: Entry, reason: Reason) -> None:
        """Send the entry's message on; its queue forgets the entry when the message is safe there."""
        self.handover.forget_when_safe(queue, entry, self.send(queue, entry.message, reason))

    def send(self, queue: Deathbed, message: Message, reason: Reason) -> Collection[Safety]:
        """Send a message on to the queue's dead-letter exchange, if there is one. Return the safeties to wait
        for until the message is safe in its new queues.
        """
        name = queue.rules.dead_letter_exchange
        exchange = None if name is None else self.vhost.exchanges.get(name)
        if self.events.died:
            self.events.emit(MessageDeadLettered(self.vhost.name, queue.name, message, str(reason), name))
        if exchange is None:
            return ()
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
            return ()
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
        """The queues for this key, remembered for the next: messages that die together share a route."""
        known = (self.vhost.version.number, exchange, routing_key)
        if known != self.last_route:
            self.last_route, self.last_targets = known, self.vhost.route(exchange, routing_key)
        return self.last_targets

    def _publish(self, message: Message, targets: list[Queue]) -> Collection[Safety]:
        self.vhost.surroundings.turns.budget.left -= LETTER_WORK + len(targets)
        return publish_to(targets, message)


@lru_cache(NAMES_CACHED_MAX)
def _wire(name: str) -> bytes:
    return encode_name(name)
