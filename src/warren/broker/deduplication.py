"""Deduplication: a queue or an exchange remembers the values of a header, and drops a message whose value it
has seen.

Values are remembered in the order in which they came, up to a number of them, each for a limited time. If
they have to survive a restart, each value is also written to a log, as a note: a small message whose body is
the value, and whose `time_ms` says until when the value counts.

- A note is written only when its message is safe. Otherwise a crash could leave the note without the message,
  and the publisher, who got no confirm, could not send the message again.
- The message is confirmed when its note is safe. If an exchange's notes and a queue are in different shards
  of a cluster, it may be confirmed a little before.
- After a crash the last messages may lack their notes. Each note names its message, as `level position` in
  place of a routing key; so `restore` looks at the messages in the queue's log behind the last noted one.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from warren.amqp.table import decode_value, encode_name
from warren.amqp.traits import header_of
from warren.broker.entry_list import EntryList
from warren.broker.lane import Lane
from warren.broker.message import Message
from warren.broker.rules import TIME_MS_MAX
from warren.broker.safety import Safety, when_all_safe
from warren.broker.store import NOTHING_TO_READ, MessageLog
from warren.broker.turns import SHARE_MAX

FOREVER = 2**63 - 1
VALUE_BYTES_MAX = 32  # of a longer value only the digest is kept
CACHE_TTL = b"x-cache-ttl"
FORGOTTEN_AT_A_TIME_MAX = 10  # more than one, so that they are forgotten faster than others come
FORGET_STEP, FORGET_WORK = 250, 2  # so many sightings are forgotten at a time; units of work for each
READ_MAX, READ_BYTES_MAX = 2_000, 4 * 1024 * 1024  # notes read at a time


class Sighting:
    """A value that was seen."""

    __slots__ = ("is_forgotten", "place", "position", "until_ms", "value")

    def __init__(self, value: bytes, until_ms: int, place: str = "", position: int = 0) -> None:
        self.value = value
        self.until_ms = until_ms  # from then on, a message with this value is no duplicate
        self.place = place  # `level position` of its message; empty if the message is not in a log
        self.position = position  # of its note in the log of notes; 0 while the note is not written
        self.is_forgotten = False  # then no note is written any more

    def __repr__(self) -> str:
        return f"<Sighting of {self.value!r} until {self.until_ms}>"


class Seen:
    def __init__(self, size: int, ttl_ms: int | None, header: str) -> None:
        self.size = size  # at most so many values are remembered
        self.ttl_ms = ttl_ms  # for how long, unless a message says otherwise; None for ever
        self.header = header.encode()  # the name of the header whose values are compared
        self.by_value: dict[bytes, Sighting] = {}  # the latest sighting of each value
        self.order: deque[Sighting] = deque()  # all sightings, the oldest first
        self.unwritten: dict[int, list[Sighting]] = {}  # whose notes wait until this round is over
        self.on_the_way: set[bytes] = set()  # values of messages that are still being handed to their queues
        self.log: MessageLog | None = None  # of notes; None if values need not survive a restart
        self.position = 0  # of the last note in the log

    @property
    def count(self) -> int:
        """How many values are remembered."""
        return len(self.order)

    def concerns(self, message: Message) -> bool:
        """Whether the message carries the deduplication header."""
        return self._value(message) is not None

    def has(self, message: Message, now_ms: int) -> bool:
        """Whether the message is a duplicate."""
        value = self._value(message)
        known = None if value is None else self.by_value.get(value)
        return known is not None and known.until_ms > now_ms

    def is_coming(self, message: Message) -> bool:
        """Whether an equal message is still being handed to its queues, so that nobody knows yet whether this
        one is a duplicate.
        """
        return bool(self.on_the_way) and self._value(message) in self.on_the_way

    def awaiting(self, message: Message) -> Iterator[int]:
        """Wait, as a job, while an equal message is coming."""
        while self.is_coming(message):
            yield SHARE_MAX

    @contextmanager
    def coming(self, message: Message) -> Iterator[None]:
        """While this lasts, the message is handed to its queues over several turns, and equal ones wait."""
        value = self._value(message)
        if value is None:
            yield
            return
        self.on_the_way.add(value)
        try:
            yield
        finally:
            self.on_the_way.discard(value)

    def note(
        self, message: Message, now_ms: int, place: str = "", elsewhere: Iterable[Safety | None] = ()
    ) -> None:
        """Remember the message's value, and write a note of it when the message is safe. `elsewhere` are the
        safeties of the queues that the message went to, if they are not the note's own: None for those
        without a log.
        """
        value = self._value(message)
        if value is None:
            return
        sighting = Sighting(value, self._until(message, now_ms), place)
        self._remember(sighting)
        if self.log is not None:
            others = {safety for safety in elsewhere if safety is not None} - {self.log.safety}
            if others:
                places = [(safety, False) for safety in (self.log.safety, *others)]
                when_all_safe(places, partial(self._write_note, sighting), partial(self._take_back, sighting))
            else:
                self._write_when_safe(sighting, self.log.safety)
        self._forget(now_ms, FORGOTTEN_AT_A_TIME_MAX)

    def _write_when_safe(self, sighting: Sighting, safety: Safety) -> None:
        """Write a note when the round is over that the message is in, and no earlier: a note without its
        message would have the message dropped when it comes again.
        """
        number = safety.gathering
        if number not in self.unwritten:
            self.unwritten[number] = []
            safety.when_safe(self._write)
        self.unwritten[number].append(sighting)

    def _write(self, number: int) -> None:
        """The messages of this round, and of those before, are safe: write their notes."""
        rounds = [known for known in self.unwritten if known <= number]
        for sighting in [sighting for known in rounds for sighting in self.unwritten.pop(known)]:
            self._write_note(sighting)

    def _write_note(self, sighting: Sighting) -> None:
        if self.log is not None and not sighting.is_forgotten:
            self.position += 1
            sighting.position = self.position
            place = encode_name(sighting.place)
            note = Message(b"\0", place, b"\0\0", sighting.value, True, sighting.until_ms)
            self.log.append(note, self.position, True)

    def _take_back(self, sighting: Sighting) -> None:
        """The leader of one of the message's queues has changed: the message may be lost. Its publisher gets
        no confirm and sends it again; then it is no duplicate.
        """
        sighting.is_forgotten = True
        if self.by_value.get(sighting.value) is sighting:
            del self.by_value[sighting.value]

    def _remember(self, sighting: Sighting) -> None:
        self.by_value[sighting.value] = sighting
        self.order.append(sighting)

    def _forget(self, now_ms: int, most: int) -> None:
        """Forget the oldest sightings, those beyond the size or whose time is over, but at most so many."""
        while most > 0 and self.order and (len(self.order) > self.size or self.order[0].until_ms <= now_ms):
            sighting = self.order.popleft()
            if self.by_value.get(sighting.value) is sighting:
                del self.by_value[sighting.value]
            _drop(sighting, self.log)
            most -= 1

    def _value(self, message: Message) -> bytes | None:
        """The value of the header, a long one as its digest; None for a message without the header."""
        value = header_of(message.properties, self.header)
        if value is not None and len(value) > VALUE_BYTES_MAX:
            return hashlib.blake2b(value, digest_size=VALUE_BYTES_MAX).digest()
        return value

    def _until(self, message: Message, now_ms: int) -> int:
        """Until when the message's value counts. The header `x-cache-ttl` may set the time to live."""
        own = header_of(message.properties, CACHE_TTL)
        ttl_ms = self.ttl_ms if own is None else decode_value(own)
        if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms < 0:
            ttl_ms = self.ttl_ms
        return FOREVER if ttl_ms is None else now_ms + min(ttl_ms, TIME_MS_MAX)

    # --- over a restart ---

    def restore(self, log: MessageLog, position: int, lanes: Iterable[Lane] = ()) -> None:
        """Read the notes, and remember messages in the queue's lanes whose notes are missing."""
        self.log = log
        self.position = position
        self.unwritten.clear()  # rounds of an earlier term
        noted: dict[int, int] = {}
        while log.peek() != NOTHING_TO_READ:
            notes = EntryList()
            log.read_on(None, notes, READ_MAX, READ_BYTES_MAX, NOTHING_TO_READ)
            while notes.head is not None:
                note = notes.pop_head()
                self._remember(Sighting(note.message.body, note.message.time_ms, "", note.position))
                level, _, place = note.message.key.partition(" ")
                if place:
                    noted[int(level)] = max(noted.get(int(level), 0), int(place))
        self._forget(
            0, len(self.order)
        )  # after a power cut there may be notes of values that had been forgotten
        for lane in lanes:
            self._look_into(lane, noted.get(lane.level, 0))

    def _look_into(self, lane: Lane, above: int) -> None:
        """Remember the messages in a lane's log `above` this position, which have no notes."""
        browser = lane.browse_log()
        while browser is not None and (position := browser.next_position(above)) != NOTHING_TO_READ:
            message, above = browser.read(), position
            if not self.has(message, message.time_ms):
                self.note(message, message.time_ms, f"{lane.level} {position}")

    def clear(self) -> Iterator[int]:
        """Forget all values at once. What that leaves to do is done step by step, with the cost of each."""
        order, self.order = self.order, deque()
        by_value, self.by_value = self.by_value, {}
        return self._clearing(order, by_value, self.log)

    def _clearing(
        self, order: deque[Sighting], by_value: dict[bytes, Sighting], log: MessageLog | None
    ) -> Iterator[int]:
        """Drop these sightings. The log that has their notes may not be this one's any more by then."""
        while order:
            step = min(len(order), FORGET_STEP)
            for _ in range(step):
                sighting = order.popleft()
                by_value.pop(sighting.value, None)
                _drop(sighting, log if self.log is log else None)
            yield step * FORGET_WORK

    def delete(self) -> None:
        if self.log is not None:
            self.log.delete()
            self.log = None


def _drop(sighting: Sighting, log: MessageLog | None) -> None:
    """A sighting is remembered no more: its note is not needed, nor will it be written."""
    sighting.is_forgotten = True
    if log is not None and sighting.position:
        log.acked(sighting.position)
