"""The messages of a queue that wait in one line, strictly ordered by position. A queue with priorities has a
lane for each level, any other queue has one.

Only the first entries are objects. What waits behind these is made into entries when its time comes:

    ready -> log         on disk, what is persistent in a queue that is durable
          -> packed      the rest, in memory
             -> overflow    and on disk, when memory for that is used up
          -> strays      entries that were taken out from the middle of these, and came back

All of these are in order of position, and so is what is read from them. What waits there can also be taken
out from the middle, by its location.

How many entries are ready depends on who wants them. A lane that nobody consumes holds a few; one that is
consumed borrows from the node's budget for more, twice as much each time, up to `READY_MAX` or
`READY_BYTES_MAX`. What is ready and on disk as well can be given up, from the tail on: then it waits on disk
again, as if it had never been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warren.amqp.budget import Budget
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.expiry import Expiry
from warren.broker.location import IN_OVERFLOW, IN_PACK, LOCATION_MASK
from warren.broker.memory import Memory
from warren.broker.message import Message
from warren.broker.pack import Pack, PackBrowser
from warren.broker.queue import Queue
from warren.broker.store import NOTHING_TO_READ, LogBrowser, MessageLog

READY_MAX, READY_BYTES_MAX = 10_000, 16 * 1024 * 1024
READY_FREE_MAX, READY_FREE_BYTES_MAX = 32, 16 * 1024  # of a queue, for nothing
READY_SLACK, READY_SLACK_BYTES = 64, 16 * 1024  # more than a lane may hold, before it gives up
READ_MAX, READ_BYTES_MAX = 2_000, 4 * 1024 * 1024  # from disk at a time
READ_FEW, READ_FEW_BYTES = 32, 16 * 1024  # at least
PASSED_FOR_A_UNIT = 50  # entries, on the way to the place of one, for a unit of work


def part_of(level: int) -> str:
    """The name of the part of the queue's log that has the messages of a level."""
    return f"priority-{level}" if level else ""


class Lane:
    def __init__(
        self,
        queue: Queue,
        budget: Budget,
        memory: Memory,
        open_overflow: Callable[[], MessageLog | None],
        level: int,
        share: int = 1,
    ) -> None:
        self.queue = queue  # for whom entries are made
        self.budget = budget
        self.memory = memory
        self.open_overflow = open_overflow
        self.level = level  # of priority
        self.ready = EntryList()
        self.share = share  # how many lanes the queue has, which share what it may hold for nothing
        self.ready_max = READY_FREE_MAX // share
        self.ready_bytes_max = READY_FREE_BYTES_MAX // share
        self.consumed = False  # while it is, the lane may borrow memory
        self.loan = 0  # bytes that the lane has borrowed
        self.keeps_all = False  # ready entries are known to others, and are not given up
        self.keeps_returned = False  # nor are those that were out with a client: a rule may wait for them
        self.strays = EntryList()
        self.log: MessageLog | None = None  # of a durable queue, for what has to survive a restart
        self.packed = Pack(memory)
        self.overflow: MessageLog | None = None
        self.position = 0  # of the last message that came
        self.expiry: Expiry | None = None  # there once a message came that expires at a time of its own

    # --- in ---

    def put(self, message: Message) -> bool:
        """Whether the message is on its way to disk, and not safe before it is there."""
        self.position += 1
        waits = self.has_behind() or not self.has_room(len(message.body))
        log = self.log if message.persistent else None
        location = 0
        if log is not None:
            location = log.append(message, self.position, not waits)
        elif waits:
            location = self.put_behind(message)
        if not waits:
            self.ready.append_new(message, self.queue, self.position, 0)
        if message.expiration_ms >= 0:
            self.expires(message, location, waits, self.position)
        return log is not None

    def has_room(self, size: int) -> bool:
        """Whether an entry of this size may be ready."""
        while self.ready.count >= self.ready_max or self.ready.bytes + size > self.ready_bytes_max:
            if not self.consumed:
                return False
            if self.ready.count == 0 or not self.borrow():
                return self.ready.count == 0  # one for which there is no room alone is welcome, too
        return True

    def put_behind(self, message: Message) -> int:
        """Keep a message that need not survive: in memory, or on disk if there is no more room. Where it
        lies.
        """
        full = self.memory.used_bytes >= self.memory.limit_bytes
        if full and self.overflow is None:
            self.overflow = self.open_overflow()
        if self.overflow is not None and (full or self.overflow.unread):
            return self.overflow.append(message, self.position, False) | IN_OVERFLOW
        return self.packed.append(message, self.position) | IN_PACK

    def put_aside(self, message: Message) -> tuple[int, int, bool]:
        """Keep a message that leaves by `take_out` only. Its position, where it lies, and whether it is on
        its way to disk.
        """
        self.position += 1
        if self.log is not None and message.persistent:
            return self.position, self.log.append(message, self.position, False), True
        return self.position, self.put_behind(message), False

    def expires(self, message: Message, location: int, waits: bool, position: int) -> None:
        """It may be gone before its turn comes. If it is ready, that is noted when nobody has taken it."""
        if self.expiry is None:
            self.expiry = Expiry()
        if waits:
            self.expiry.note_behind(message.time_ms + message.expiration_ms, position, location)

    def put_back(self, entry: Entry) -> None:
        """An entry that was out returns to its place."""
        if self.has_behind() and (entry.position > self.next_behind() or self.is_among_strays(entry)):
            passed = self.strays.insert(entry)
        else:
            passed = self.ready.insert(entry)
            if self.is_over() and not (self.consumed and self.borrow()):
                self.memory.shrink_soon(self)
        self.budget.left -= passed // PASSED_FOR_A_UNIT
        if entry.message.expiration_ms >= 0:
            if self.expiry is None:
                self.expiry = Expiry()
            self.expiry.note_ready(entry)

    # --- out ---

    def has_behind(self) -> bool:
        """Whether anything waits behind the ready entries."""
        if self.packed.count or self.strays.head is not None:
            return True
        if self.log is not None and self.log.unread:
            return True
        return self.overflow is not None and self.overflow.unread > 0

    def has_any(self) -> bool:
        """Whether anything waits here."""
        return self.ready.head is not None or self.has_behind()

    def first(self) -> Entry | None:
        """The entry that is next, which stays there."""
        while self.ready.head is None and self.has_behind():
            self.read_on()
        return self.ready.head

    def pop(self) -> Entry:
        """Take out the entry that is next; there must be one."""
        entry = self.ready.pop_head()
        if self.expiry is not None:
            self.expiry.forget(entry)
        return entry

    def remove(self, entry: Entry) -> None:
        """Take out an entry, from wherever it is."""
        if self.is_among_strays(entry):
            self.strays.remove(entry)
        else:
            self.ready.remove(entry)
        if self.expiry is not None:
            self.expiry.forget(entry)

    def is_ready(self, entry: Entry) -> bool:
        """Whether it is in the list, and not taken."""
        if self.ready.tail is entry:
            return True
        return entry.behind is not None and not self.is_among_strays(entry)

    def is_stray(self, entry: Entry) -> bool:
        """Whether it is in the list of those, and not taken."""
        if self.strays.tail is entry:
            return True
        return entry.behind is not None and self.is_among_strays(entry)

    def is_among_strays(self, entry: Entry) -> bool:
        """Whether it is there, or that is where it belongs: all strays are behind all that are ready."""
        return self.strays.head is not None and entry.position >= self.strays.head.position

    def read_on(self) -> None:
        """Make entries of the next messages that wait behind; from memory many, from disk some at a time."""
        if self.consumed and self.ready_bytes_max < READ_BYTES_MAX:
            self.borrow()
        most = min(max(self.ready_max, READ_FEW), READ_MAX)
        most_bytes = min(max(self.ready_bytes_max, READ_FEW_BYTES), READ_BYTES_MAX)
        stored = NOTHING_TO_READ if self.log is None else self.log.peek()
        stray = NOTHING_TO_READ if self.strays.head is None else self.strays.head.position
        more = EntryList()
        self.unpack(more, min(stored, stray))
        if not more.count:
            aside = self.next_aside()
            if stray < min(stored, aside):
                more.append(self.strays.pop_head())
            elif self.log is not None and stored < aside:
                self.log.read_on(self.queue, more, most, most_bytes, min(aside, stray))
            elif self.overflow is not None:
                self.overflow.read_on(self.queue, more, most, most_bytes, min(stored, stray))
        if self.expiry is not None:
            self.expiry.note_new(self.ready)
            self.expiry.have_become_ready(more)
        self.ready.extend(more)
        if not self.consumed:
            self.rest()

    def next_aside(self) -> int:
        """The position of the next one that is not in the log."""
        if self.packed.count:
            return self.packed.next_position
        if self.overflow is not None:
            return self.overflow.peek()
        return NOTHING_TO_READ

    def unpack(self, more: EntryList, before: int) -> None:
        room = max(self.ready_max, READ_FEW)
        while self.packed.count and room > 0 and self.packed.next_position < before:
            position = self.packed.next_position
            more.append_new(self.packed.pop(), self.queue, position, 0)
            room -= 1

    def take_out(self, position: int, location: int, time_ms: int) -> Entry | None:
        """One that waits behind, and came then; None if it does not any more, or cannot be read."""
        if location & IN_PACK:
            waits = self.packed.count and position >= self.packed.next_position
            message = self.packed.take_out(location & LOCATION_MASK, time_ms) if waits else None
        else:
            log = self.overflow if location & IN_OVERFLOW else self.log
            message = None if log is None else log.take_out(position, location & LOCATION_MASK)
        return None if message is None else self.made(message, position, location)

    def made(self, message: Message, position: int, location: int) -> Entry:
        """An entry of a message that lies there; after a restart it may have been delivered before."""
        entry = Entry(message, self.queue, position)
        if self.log is not None and location <= LOCATION_MASK:
            entry.delivery_count = self.log.deliveries_of(position)
        return entry

    def take_expired(self, now_ms: int) -> Entry | None:
        """The next one whose own time is over, or None."""
        expiry = self.expiry
        while expiry is not None:
            position = expiry.pop_due(now_ms)
            if not position:
                return None
            entry = expiry.ready_at(position)
            if entry is not None:
                self.remove(entry)
                return entry
            entry = self.take_out(position, expiry.location, now_ms) if expiry.location else None
            if entry is not None:
                return entry
        return None

    @property
    def expires_any(self) -> bool:
        """Whether a message has come that expires at a time of its own."""
        return self.expiry is not None

    def note_expiries(self) -> None:
        """Note when entries expire that have become ready since the last time."""
        if self.expiry is not None:
            self.expiry.note_new(self.ready)

    def next_expiry(self) -> int:
        """When the next message expires at a time of its own; -1 if none does."""
        if self.expiry is None:
            return -1
        self.expiry.weed_if_stale(self.length(), self.next_behind)
        return self.expiry.next_due()

    def next_behind(self) -> int:
        """The position of the first that waits behind, strays not counted."""
        stored = NOTHING_TO_READ if self.log is None else self.log.peek()
        return min(stored, self.next_aside())

    # --- looking, without taking ---

    def next_ready(self, last: Entry | None, position: int) -> Entry | None:
        """The ready entry behind this one, if that is still there, or else the first beyond a position."""
        if last is not None and (last.behind is not None or self.ready.tail is last):
            return last.behind
        return self.ready.first_beyond(position, None)

    def next_stray(self, last: Entry | None, position: int) -> Entry | None:
        """The first stray beyond a position. It is found from `last`, so that to walk over very many strays
        costs no more than their number.
        """
        if last is not None and not self.is_stray(last):
            last = None
        return self.strays.first_beyond(position, last)

    def sources_behind(self) -> tuple[object, object, object]:
        """Where messages wait behind the ready ones. A purge changes that, and ends all browsers."""
        return (self.packed, self.log, self.overflow)

    def browse(self) -> tuple[PackBrowser, LogBrowser | None, LogBrowser | None]:
        """Pointers to what waits behind: packed, in the log, and in the overflow."""
        return (
            PackBrowser(self.packed),
            None if self.log is None else self.log.browse(),
            None if self.overflow is None else self.overflow.browse(),
        )

    # --- how much is ready ---

    def borrow(self) -> bool:
        """Whether it may hold more from now on: about twice as much."""
        if self.ready_max >= READY_MAX and self.ready_bytes_max >= READY_BYTES_MAX:
            return False
        more = min(max(self.ready_bytes_max, READY_FREE_BYTES_MAX), READY_BYTES_MAX - self.ready_bytes_max)
        if not self.memory.lend(self, more):
            return False
        self.loan += more
        self.ready_bytes_max += more
        self.ready_max = min(max(2 * self.ready_max, 2 * READY_FREE_MAX), READY_MAX)
        return True

    def needs_loan(self) -> bool:
        """Whether it holds a good part of what it might."""
        return 4 * self.ready.count >= self.ready_max or 4 * self.ready.bytes >= self.ready_bytes_max

    def return_loan(self) -> None:
        if self.loan:
            self.memory.take_back(self, self.loan)
            self.loan = 0
            self.ready_max = READY_FREE_MAX // self.share
            self.ready_bytes_max = READY_FREE_BYTES_MAX // self.share

    def set_consumed(self, consumed: bool) -> None:
        self.consumed = consumed
        if not consumed:
            self.return_loan()
            self.memory.shrink_soon(self)

    def rest(self) -> None:
        """Nobody is about to read on."""
        if self.log is not None:
            self.log.rest()
        if self.is_over():
            self.memory.shrink_soon(self)

    def is_over(self) -> bool:
        """Whether it holds so much more than it may that to give it up is worth while."""
        if self.log is None or self.ready.count <= 1:
            return False
        if self.ready.count > self.ready_max + READY_SLACK:
            return True
        return self.ready.bytes > self.ready_bytes_max + READY_SLACK_BYTES

    def give_up(self, most: int) -> int:
        """Have entries that are on disk as well wait there alone, down to what may be ready, at most so many;
        return how many that were.
        """
        if self.log is None or self.keeps_all or not self.is_over():
            return 0
        given = 0
        while given < most and self.ready.count > 1:
            if self.ready.count <= self.ready_max and self.ready.bytes <= self.ready_bytes_max:
                break
            if not self.give_up_last():
                break
            given += 1
        self.log.rest()
        self.budget.left -= given
        return given

    def give_up_last(self) -> bool:
        """Whether the last ready entry could be given up."""
        entry = self.ready.tail
        if entry is None or self.log is None or not entry.message.persistent:
            return False
        if entry.delivered_ms and self.keeps_returned:
            return False
        location = self.log.give_back(entry.message, entry.position, entry.delivery_count)
        if location == 0:
            return False
        self.remove(entry)
        if entry.message.expiration_ms >= 0:
            self.expires(entry.message, location, True, entry.position)
        return True

    # --- what is known of a message that is out ---

    def note_delivered(self, entry: Entry) -> None:
        if self.log is not None and entry.message.persistent:
            self.log.delivered(entry.position, entry.delivery_count + 1)

    def done(self, entry: Entry) -> None:
        if self.log is not None and entry.message.persistent:
            self.log.acked(entry.position)

    # --- all of it ---

    def length(self) -> int:
        """How many are ready, those that wait behind included."""
        count = self.ready.count + self.packed.count + self.strays.count
        if self.log is not None:
            count += self.log.unread
        if self.overflow is not None:
            count += self.overflow.unread
        return count

    def body_bytes(self) -> int:
        count = self.ready.bytes + self.packed.bytes + self.strays.bytes
        if self.log is not None:
            count += self.log.unread_bytes
        if self.overflow is not None:
            count += self.overflow.unread_bytes
        return count

    def clear(self, *, deleted: bool) -> EntryList:
        """Nothing waits here any more. The entries, to be freed a part at a time."""
        self.return_loan()
        self.memory.shrinking.pop(self, None)
        if self.log is not None and deleted:
            self.log.delete()
        elif self.log is not None:
            self.log.purge()
            for entry in (*self.ready, *self.strays):
                self.done(entry)
        if self.overflow is not None:
            self.overflow.delete()
            self.overflow = None
        dropped, self.ready, self.packed, self.expiry = self.ready, EntryList(), Pack(self.memory), None
        dropped.extend(self.strays)
        return dropped

    def end(self) -> None:
        """The queue is deleted. It still knows its lanes, but they make no more entries for it."""
        self.queue = None  # type: ignore[assignment]  # or it would never be so, in every other line

    def release_memory(self) -> None:
        """The broker ends: nothing else frees entries, of which the garbage collector knows nothing."""
        for entries in (self.ready, self.strays):
            entries.drop(entries.count)

    def take_over(self, log: MessageLog, position: int) -> Iterable[tuple[int, int, int]]:
        """Take over messages that are on disk; positions go on behind this one. When, position and location
        of those that are due at a time of their own.
        """
        self.log = log
        self.position = position
        return log.due()

    def restore(self, log: MessageLog, position: int) -> None:
        """Take over messages that are on disk, and note when they expire."""
        for due_ms, due_position, location in self.take_over(log, position):
            if self.expiry is None:
                self.expiry = Expiry()
            self.expiry.note_behind(due_ms, due_position, location)
