"""Sends messages that die in a queue on to its dead-letter exchange.

No message is lost on the way: a persistent one leaves its old queue's log only when it is safe in the logs of
the new queues. If the broker ends in between, the message is in both. If a new queue gets another leader
before it has said that the message is safe there, it is sent that message again.

A letter to very many queues reaches them over several turns. Others that die meanwhile stand in line behind
it, so that each queue gets the letters of a vhost in the order in which the messages died.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from warren.amqp.table import encode_name
from warren.broker.clock import Clock
from warren.broker.death import Death, Letter, Reason, write_letter
from warren.broker.deduplication import Seen
from warren.broker.entry import Entry
from warren.broker.events import Events, MessageDeadLettered, MessageDeduplicated
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
FORGET_WORK = 1  # the same for forgetting it in its old queue, or in the line
LINE_LONG = 1_000  # letters in line: from then on what dies waits in its queue, if it can
LINE_MAX = 10_000  # letters in line: those beyond reach all their queues at once, however many


class Leaving:
    """An entry whose message is on its way to other queues."""

    __slots__ = ("entry", "queue", "sent", "unsafe")

    def __init__(self, queue: Deathbed, entry: Entry | None, sent: Sent) -> None:
        self.queue = queue  # that the entry is in until then
        self.entry = entry  # None for a message that the queue has refused
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
        self, queue: Deathbed, entry: Entry | None, message: Message, targets: Sequence[Target]
    ) -> Generator[int, None, Sent]:
        """Send a message to its queues step by step, and have the queue that it comes from forget the entry
        when it is safe there. Yield the cost of each step.
        """
        leaving = Leaving(queue, entry, Sent(message, {}, False))
        was_refused = False
        leaving.unsafe = 1  # until the message is sent
        work = enqueue_work(message, len(targets)) // (1 + len(targets))
        for begun in range(0, len(targets), QUEUES_A_STEP):
            step = targets[begun : begun + QUEUES_A_STEP]
            was_refused |= self._send(leaving, step)
            yield work * len(step)
        self._goes(leaving)
        return Sent(message, leaving.sent.places, was_refused)

    def _send(self, leaving: Leaving, targets: Iterable[Target]) -> bool:
        """Send a message to some of its queues. Return whether one of them has refused it."""
        sent = publish_to(targets, leaving.sent.message)
        for safety, queues in sent.places.items():
            leaving.sent.places.setdefault(safety, []).extend(queues)
        self._wait(leaving, sent)
        return sent.was_refused

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
        if not leaving.unsafe and leaving.entry is not None:
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


class Dead(NamedTuple):
    """A message that has died in a queue, or that the queue has refused, and what becomes of it."""

    queue: Deathbed
    entry: Entry | None  # None for a message that was refused
    reason: Reason
    exchange: Exchange  # where it goes
    message: Message  # as it goes there
    letter: Letter
    keys: list[str]


class DeadLetters:
    """Routes the dead letters of one vhost."""

    def __init__(self, vhost: Vhost, clock: Clock, events: Events, handover: Handover) -> None:
        self.vhost = vhost
        self.clock = clock
        self.events = events
        self.handover = handover
        self.turns = handover.turns
        self.budget = handover.turns.budget
        self.line: deque[Dead] = deque()  # the first is on its way, the others wait for it
        self.last_route: tuple[int, Exchange, bytes] | None = None  # vhost's version, exchange, routing key
        self.last_targets: list[Queue] = []  # the queues that `last_route` led to

    @property
    def is_full(self) -> bool:
        return len(self.line) >= LINE_LONG

    def sending(
        self, queue: Deathbed, entry: Entry, message: Message, targets: Sequence[Target]
    ) -> Iterator[int]:
        return self.handover.sending(queue, entry, message, targets)

    def bury(self, queue: Deathbed, entry: Entry, reason: Reason) -> None:
        """Send the entry's message on; its queue forgets the entry when the message is safe there."""
        self._send(queue, entry, entry.message, reason)

    def send(self, queue: Deathbed, message: Message, reason: Reason) -> None:
        """Send a message that its queue has refused on to the dead-letter exchange, if there is one."""
        self._send(queue, None, message, reason)

    def _send(self, queue: Deathbed, entry: Entry | None, message: Message, reason: Reason) -> None:
        name = queue.rules.dead_letter_exchange
        exchange = None if name is None else self.vhost.exchanges.get(name)
        if self.events.died:
            self.events.emit(MessageDeadLettered(self.vhost.name, queue.name, message, str(reason), name))
        if exchange is None:
            if entry is not None:
                queue.forget(entry)
            return
        self.budget.left -= LETTER_WORK
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
        if exchange.seen is None and not self.line:  # as with most letters
            targets = self._targets(exchange, letter_message, keys, letter, reason)
            if self._fits(letter_message, targets):
                sent = self._publish(letter_message, targets)
                if entry is not None:
                    self.handover.forget_when_safe(queue, entry, sent)
                return
        self._send_in_order(Dead(queue, entry, reason, exchange, letter_message, letter, keys))

    def under_way(self, queue: Deathbed) -> set[Entry]:
        """The entries of a queue that have died, and are not safe yet where they go."""
        entries = {dead.entry for dead in self.line if dead.queue is queue}
        for waiting in self.handover.gathered.values():
            entries |= {leaving.entry for leaving in waiting if leaving.queue is queue}
        return {entry for entry in entries if entry is not None}

    # --- to its queues ---

    def _send_in_order(self, dead: Dead) -> None:
        """Send a letter at once, or have it stand in line."""
        seen = dead.exchange.seen
        has_to_wait = bool(self.line) or (seen is not None and seen.is_coming(dead.message))
        if has_to_wait and len(self.line) < LINE_MAX:
            self._stand_in_line(dead)
        elif seen is None or not self._is_duplicate(dead, seen):
            targets = self._targets_of(dead)
            if has_to_wait or self._fits(dead.message, targets):
                sent = self._publish(dead.message, targets)
                if seen is not None:
                    self._note_seen(dead, seen, sent)
                if dead.entry is not None:
                    self.handover.forget_when_safe(dead.queue, dead.entry, sent)
            else:
                self._stand_in_line(dead)

    def _stand_in_line(self, dead: Dead) -> None:
        self.line.append(dead)
        if len(self.line) == 1:
            self.turns.spread(self._sending_all())

    def _sending_all(self) -> Iterator[int]:
        while self.line:
            try:
                if not self.vhost.ended:
                    yield from self._sending(self.line[0])
            except Exception as error:  # noqa: BLE001 - a letter that fails must not keep the others waiting
                self.turns.report(error)
            yield FORGET_WORK  # even if it went nowhere
            self.line.popleft()

    def _sending(self, dead: Dead) -> Iterator[int]:
        """Send a letter step by step. Until it is in all its queues, equal messages wait if its exchange
        deduplicates.
        """
        seen = dead.exchange.seen
        if seen is None:
            yield from self._spreading(dead)
            return
        yield from seen.awaiting(dead.message)
        if not self._is_duplicate(dead, seen):
            with seen.coming(dead.message):
                sent = yield from self._spreading(dead)
            self._note_seen(dead, seen, sent)

    def _spreading(self, dead: Dead) -> Generator[int, None, Sent]:
        return self.handover.sending(dead.queue, dead.entry, dead.message, self._targets_of(dead))

    def _fits(self, message: Message, targets: list[Queue]) -> bool:
        """Whether a letter can reach all its queues in this turn."""
        return len(targets) <= QUEUES_A_STEP or enqueue_work(message, len(targets)) <= self.budget.left

    def _publish(self, message: Message, targets: list[Queue]) -> Sent:
        self.budget.left -= enqueue_work(message, len(targets))
        return publish_to(targets, message)

    # --- deduplication ---

    def _is_duplicate(self, dead: Dead, seen: Seen) -> bool:
        """Whether the exchange has seen the letter before. Then it is dropped: when what was seen is safe."""
        if not seen.has(dead.message, self.clock.time_ms):
            return False
        if self.events.died:
            self.events.emit(MessageDeduplicated(self.vhost.name, dead.exchange.name, dead.message))
        if dead.entry is not None:
            places: dict[Safety, list[Target]] = {} if seen.log is None else {seen.log.safety: []}
            self.handover.forget_when_safe(dead.queue, dead.entry, Sent(dead.message, places, False))
        return True

    def _note_seen(self, dead: Dead, seen: Seen, sent: Sent) -> None:
        """Have the exchange remember the letter, unless a queue has refused it."""
        if not sent.was_refused:
            seen.note(dead.message, self.clock.time_ms, elsewhere=sent.places)

    # --- routes ---

    def _targets_of(self, dead: Dead) -> list[Queue]:
        return self._targets(dead.exchange, dead.message, dead.keys, dead.letter, dead.reason)

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


@lru_cache(NAMES_CACHED_MAX)
def _wire(name: str) -> bytes:
    return encode_name(name)
