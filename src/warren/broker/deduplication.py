"""What a queue or an exchange has seen: the values of a header, so that a message that comes again is
dropped.

Values are kept in the order in which they came, at most so many, each for so long. What has to survive a
restart is also in a log, as a note for each value: a small message whose body is the value, and whose time
is until when it counts. A note is written when the message is safe, or a message that is lost could not come
again; and the message is confirmed when the note is safe. For a message whose note is missing after a crash,
its queue's log tells: a note says which message it belongs to, `level position` in place of the routing key.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable

from warren.amqp.table import decode_value, encode_name
from warren.amqp.traits import header_of
from warren.broker.entry_list import EntryList
from warren.broker.lane import Lane
from warren.broker.message import Message
from warren.broker.rules import TIME_MS_MAX
from warren.broker.store import NOTHING_TO_READ, MessageLog

FOREVER = 2**63 - 1
VALUE_BYTES_MAX = 32
CACHE_TTL = b"x-cache-ttl"
READ_MAX, READ_BYTES_MAX = 2_000, 4 * 1024 * 1024


class Sighting:
    """A value, until when it counts, and where its note is in the log: 0 if it is not written yet."""

    __slots__ = ("is_forgotten", "place", "position", "until_ms", "value")

    def __init__(self, value: bytes, until_ms: int, place: str = "", position: int = 0) -> None:
        self.value = value
        self.until_ms = until_ms
        self.place = place
        self.position = position
        self.is_forgotten = False


class Seen:
    def __init__(self, size: int, ttl_ms: int | None, header: str) -> None:
        self.size = size
        self.ttl_ms = ttl_ms
        self.header = header.encode()
        self.by_value: dict[bytes, Sighting] = {}
        self.order: deque[Sighting] = deque()
        self.unwritten: list[Sighting] = []
        self.log: MessageLog | None = None
        self.position = 0

    @property
    def count(self) -> int:
        """How many values are remembered."""
        return len(self.order)

    def concerns(self, message: Message) -> bool:
        """Whether the message carries the deduplication header."""
        return self._value(message) is not None

    def has(self, message: Message, now_ms: int) -> bool:
        value = self._value(message)
        known = None if value is None else self.by_value.get(value)
        return known is not None and known.until_ms > now_ms

    def drops(self, message: Message, now_ms: int) -> bool:
        """Whether it has come before; if not, it has from now on."""
        if self.has(message, now_ms):
            return True
        self.note(message, now_ms)
        return False

    def note(self, message: Message, now_ms: int, place: str = "") -> None:
        value = self._value(message)
        if value is None:
            return
        sighting = Sighting(value, self._until(message, now_ms), place)
        self._remember(sighting)
        if self.log is not None:
            if not self.unwritten:
                self.log.safety.when_safe(self._write)
            self.unwritten.append(sighting)
        self._forget(now_ms)

    def _write(self, _number: int) -> None:
        """What was seen is safe: now it may be noted that it was."""
        unwritten, self.unwritten = self.unwritten, []
        for sighting in unwritten:
            if self.log is not None and not sighting.is_forgotten:
                self.position += 1
                sighting.position = self.position
                place = encode_name(sighting.place)
                note = Message(b"\0", place, b"\0\0", sighting.value, True, sighting.until_ms)
                self.log.append(note, self.position, True)

    def _remember(self, sighting: Sighting) -> None:
        self.by_value[sighting.value] = sighting
        self.order.append(sighting)

    def _forget(self, now_ms: int) -> None:
        """Beyond the size the oldest, and the oldest as long as their time is over."""
        while self.order and (len(self.order) > self.size or self.order[0].until_ms <= now_ms):
            sighting = self.order.popleft()
            sighting.is_forgotten = True
            if self.by_value.get(sighting.value) is sighting:
                del self.by_value[sighting.value]
            if self.log is not None and sighting.position:
                self.log.acked(sighting.position)

    def _value(self, message: Message) -> bytes | None:
        """None for a message that does not say; a long value as its digest."""
        value = header_of(message.properties, self.header)
        if value is not None and len(value) > VALUE_BYTES_MAX:
            return hashlib.blake2b(value, digest_size=VALUE_BYTES_MAX).digest()
        return value

    def _until(self, message: Message, now_ms: int) -> int:
        """A message may ask for a time of its own, up to the longest that a queue can have."""
        own = header_of(message.properties, CACHE_TTL)
        ttl_ms = self.ttl_ms if own is None else decode_value(own)
        if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms < 0:
            ttl_ms = self.ttl_ms
        return FOREVER if ttl_ms is None else now_ms + min(ttl_ms, TIME_MS_MAX)

    # --- over a restart ---

    def restore(self, log: MessageLog, position: int, lanes: Iterable[Lane] = ()) -> None:
        """Read the notes, and see what else is in the lanes of the queue."""
        self.log = log
        self.position = position
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
        self._forget(0)  # after a power cut there may be notes of what had been forgotten
        for lane in lanes:
            self._look_into(lane, noted.get(lane.level, 0))

    def _look_into(self, lane: Lane, above: int) -> None:
        """What came behind this position was not noted any more."""
        browser = None if lane.log is None else lane.log.browse()
        while browser is not None and (position := browser.next_position(above)) != NOTHING_TO_READ:
            message, above = browser.read(), position
            if not self.has(message, message.time_ms):
                self.note(message, message.time_ms, f"{lane.level} {position}")

    def clear(self) -> int:
        """Forget everything; how much that was."""
        count = len(self.order)
        for sighting in self.order:
            sighting.is_forgotten = True
            if self.log is not None and sighting.position:
                self.log.acked(sighting.position)
        self.by_value.clear()
        self.order.clear()
        return count

    def delete(self) -> None:
        if self.log is not None:
            self.log.delete()
            self.log = None
