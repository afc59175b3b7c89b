"""A lane: messages of a queue in one line, strictly ordered by position. A queue with priorities has a lane
for each level, any other queue has one.

Only the first messages are objects: the ready entries. The others wait behind these, and are made into
entries when their time comes:

    ready -> log         on disk: persistent messages of a durable queue
          -> packed      in memory: all other messages
             -> overflow    on disk: those of them for which memory has no room
          -> strays      entries behind some of the above, such as those that were taken out and came back

Each of these is in order of position, and messages become ready in order of position. A message that waits
behind can also be taken out from the middle, by its location.

How many entries may be ready depends on demand. A lane without consumers holds a few. A lane with consumers
borrows memory from the node's budget to hold more, twice as much each time, up to `READY_MAX` or
`READY_BYTES_MAX`. An entry whose message is on disk can be given up, the last ones first: the message then
waits in the log again, as if it had never been read.

A message that must not go out before it is safe (`MessageLog.holds_back`) is in its place all the same, ready
or behind. Only those up to the position `released` are given to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from warren.amqp.budget import Budget
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.expiry import Expiry
from warren.broker.gate import Gate
from warren.broker.location import IN_OVERFLOW, IN_PACK, LOCATION_MASK
from warren.broker.memory import Memory
from warren.broker.message import Message
from warren.broker.pack import Pack, PackBrowser
from warren.broker.queue import Queue
from warren.broker.store import NOTHING_TO_READ, LogBrowser, MessageLog

READY_MAX, READY_BYTES_MAX = 10_000, 16 * 1024 * 1024
READY_FREE_MAX, READY_FREE_BYTES_MAX = 32, 16 * 1024  # what a queue may hold without a loan
READY_SLACK, READY_SLACK_BYTES = 64, 16 * 1024  # a lane gives entries up when it is so far above its limit
READ_MAX, READ_BYTES_MAX = 2_000, 4 * 1024 * 1024  # at most so much is read from disk at a time
READ_FEW, READ_FEW_BYTES = 32, 16 * 1024  # at least so much may be read, however small the lane's limit
HELD_MS = 100  # a message whose time has come before it is safe is looked at again after so long
STRAYS_PASSED_MAX = 100_000  # transient ones, to find those that can be given up
STALE_WORK = 1  # units of work for what is noted of a message that expired and is gone already
DROP_STEP = 1_000  # entries that were purged are freed so many at a time
PASSED_FOR_A_UNIT = 50  # passing so many entries, to find the place of one, costs a unit of work


def part_of(level: int) -> str:
    """The name of the part of the queue's log that has the messages of this level of priority."""
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
        self.queue = queue  # the queue that the lane's entries belong to; None when that is deleted
        self.budget = budget  # of work in this turn
        self.memory = memory  # the node's budget of memory for messages
        self.open_overflow = open_overflow  # opens a log for `overflow`; None if there is no disk
        self.level = level  # of priority
        self.ready = EntryList()  # the first messages, as entries
        self.share = share  # how many lanes the queue has: they share what it may hold without a loan
        self.ready_max = READY_FREE_MAX // share  # how many entries may be ready
        self.ready_bytes_max = READY_FREE_BYTES_MAX // share  # how large their bodies may be together
        self.consumed = False  # whether consumers take messages; only then the lane may borrow memory
        self.loan = 0  # bytes that the lane has borrowed
        self.keeps_all = False  # whether no ready entry may be given up
        self.strays = EntryList()  # entries that belong behind messages that are not ready
        self.stored_strays = 0  # how many of them are on disk as well, and can be given up
        self.log: MessageLog | None = None  # for persistent messages of a durable queue
        self.packed = Pack(memory)  # messages in memory that are not entries
        self.overflow: MessageLog | None = None  # for messages that memory has no room for
        self.position = 0  # of the last message that came
        self.released = NOTHING_TO_READ  # the last position that may go out, if there is a gate
        self.gate: Gate[int] | None = None  # holds back what is not safe yet; None if the log does not
        self.expiry: Expiry | None = None  # made when the first message with an expiration of its own comes

    def __repr__(self) -> str:
        name = getattr(self.queue, "name", None)
        return f"<Lane {self.level} of {name!r}: {self.ready!r} ready, last position {self.position}>"

    # --- in ---

    def put(self, message: Message) -> bool:
        """Add a message at the end. Return whether it is on its way to disk, and not safe before it is there.
        `warren perf throughput` watches this.
        """
        self.position += 1
        waits = self.has_behind() or not self.has_room(len(message.body))
        log = self.log if message.persistent else None
        location = 0
        if log is not None:
            location = log.append(message, self.position, not waits)
            if self.gate is not None:
                self.gate.note(self.position)
        elif waits:
            location = self.put_behind(message)
        if not waits:
            self.ready.append_new(message, self.queue, self.position, location, 0)
        if message.expiration_ms >= 0:
            self.expires(message, location, waits, self.position)
        return log is not None

    def has_room(self, size: int) -> bool:
        """Whether an entry of this size may be ready, if need be with a loan."""
        while self.ready.count >= self.ready_max or self.ready.bytes + size > self.ready_bytes_max:
            if not self.consumed:
                return False
            if self.ready.count == 0 or not self.borrow():
                return self.ready.count == 0  # an empty lane takes a message of any size
        return True

    def put_behind(self, message: Message) -> int:
        """Keep a message that need not survive a restart: in memory, or on disk if memory has no room. Return
        its location.
        """
        full = self.memory.used_bytes >= self.memory.limit_bytes
        if full and self.overflow is None:
            self.overflow = self.open_overflow()
        if self.overflow is not None and (full or self.overflow.unread):
            return self.overflow.append(message, self.position, False) | IN_OVERFLOW
        return self.packed.append(message, self.position) | IN_PACK

    def put_aside(self, message: Message) -> tuple[int, int, bool]:
        """Keep a message that leaves by `take_out` only. Return its position, its location, and whether it is
        on its way to disk.
        """
        self.position += 1
        if self.log is not None and message.persistent:
            if self.gate is not None:
                self.gate.note(self.position)
            return self.position, self.log.append(message, self.position, False), True
        return self.position, self.put_behind(message), False

    def expires(self, message: Message, location: int, waits: bool, position: int) -> None:
        """Note when a message expires. A ready one is noted later (`note_expiries`), if nobody takes it."""
        if self.expiry is None:
            self.expiry = Expiry()
        if waits:
            self.expiry.note_behind(message.time_ms + message.expiration_ms, position, location)

    def put_back(self, entry: Entry) -> None:
        """An entry that was out returns to its place: among the ready entries, or as a stray behind them."""
        if self.has_behind() and (entry.position > self.next_behind() or self.is_among_strays(entry)):
            passed = self.strays.insert(entry)
            self.stored_strays += entry.message.persistent
        else:
            passed = self.ready.insert(entry)
        if self.holds_too_much() and not (self.consumed and self.borrow()):
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
        """Whether there is any message, ready or behind, that may go out."""
        head = self.ready.head
        if head is not None:
            return head.position <= self.released
        if self.strays.head is not None and self.strays.head.position <= self.released:
            return True
        return self.has_behind() and (self.gate is None or self.next_behind() <= self.released)

    def first(self) -> Entry | None:
        """The next entry that may go out, made ready if need be; it stays in the lane."""
        while self.ready.head is None and self.has_behind():
            self.read_on()
        head = self.ready.head
        return None if head is None or head.position > self.released else head

    def last_position(self) -> int:
        """The position of the last message that may go out."""
        return min(self.position, self.released)

    def may_read_on(self) -> bool:
        """Whether anything behind the ready entries might go out."""
        tail = self.ready.tail
        return self.has_behind() and (tail is None or tail.position < self.released)

    def release(self, position: int) -> None:
        """Messages up to this position are safe, and may go out."""
        self.released = position
        if self.queue is not None:
            self.queue.touch()

    def pop(self) -> Entry:
        """Take out the first ready entry; there must be one."""
        entry = self.ready.pop_head()
        if self.expiry is not None:
            self.expiry.forget(entry)
        return entry

    def remove(self, entry: Entry) -> None:
        """Take out an entry, ready or stray."""
        if self.is_among_strays(entry):
            self.take_stray(entry)
        else:
            self.ready.remove(entry)
        if self.expiry is not None:
            self.expiry.forget(entry)

    def take_stray(self, entry: Entry) -> None:
        self.strays.remove(entry)
        self.stored_strays -= entry.message.persistent

    def is_ready(self, entry: Entry) -> bool:
        """Whether an entry of this lane is ready, and was not taken meanwhile."""
        if self.ready.tail is entry:
            return True
        return entry.behind is not None and not self.is_among_strays(entry)

    def is_stray(self, entry: Entry) -> bool:
        """Whether an entry of this lane is a stray, and was not taken meanwhile."""
        if self.strays.tail is entry:
            return True
        return entry.behind is not None and self.is_among_strays(entry)

    def is_among_strays(self, entry: Entry) -> bool:
        """Whether an entry is a stray, or would be one: all strays are behind all ready entries."""
        return self.strays.head is not None and entry.position >= self.strays.head.position

    def read_on(self) -> None:
        """Make the next messages that wait behind ready, from whichever source has the lowest position."""
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
                head = self.strays.head
                assert head is not None, "it has a position"
                self.take_stray(head)
                more.append(head)
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
        """The position of the next message that is packed or in the overflow."""
        if self.packed.count:
            return self.packed.next_position
        if self.overflow is not None:
            return self.overflow.peek()
        return NOTHING_TO_READ

    def unpack(self, more: EntryList, before: int) -> None:
        """Append to `more` entries of packed messages, those with positions below `before`."""
        room = max(self.ready_max, READ_FEW)
        while self.packed.count and room > 0 and self.packed.next_position < before:
            position = self.packed.next_position
            more.append_new(self.packed.pop(), self.queue, position, 0, 0)
            room -= 1

    def take_out(self, position: int, location: int, time_ms: int) -> Entry | None:
        """Take out a message that waits behind, by its location; None if it does not wait any more, or cannot
        be read. `time_ms` is when the message came, which a pack cannot tell for a single message.
        """
        if location & IN_PACK:
            waits = self.packed.count and position >= self.packed.next_position
            message = self.packed.take_out(location & LOCATION_MASK, time_ms) if waits else None
        else:
            log = self.overflow if location & IN_OVERFLOW else self.log
            message = None if log is None else log.take_out(position, location & LOCATION_MASK)
        return None if message is None else self.made(message, position, location)

    def made(self, message: Message, position: int, location: int) -> Entry:
        """The entry for a message that waits behind, or did until now. It may have been delivered before."""
        entry = Entry(message, self.queue, position)
        if self.log is not None and location <= LOCATION_MASK:
            entry.location = location
            entry.delivery_count = self.log.deliveries_of(position)
            entry.returned = self.log.has_returned(position)
        if self.expiry is not None:
            self.expiry.is_noted(entry)
        return entry

    def take_expired(self, now_ms: int) -> Entry | None:
        """Take out the next message whose own expiration has passed; None if there is none, or if to find it
        is too much for this turn.
        """
        expiry = self.expiry
        while expiry is not None:
            position = expiry.pop_due(now_ms)
            if not position:
                return None
            if position > self.released:
                expiry.note_behind(now_ms + HELD_MS, position, expiry.location)
                continue
            entry = expiry.ready_at(position)
            if entry is not None:
                self.remove(entry)
                return entry
            entry = self.take_out(position, expiry.location, now_ms) if expiry.location else None
            if entry is not None:
                return entry
            self.budget.left -= STALE_WORK
            if not expiry.pass_stale():
                return None
        return None

    @property
    def expires_any(self) -> bool:
        """Whether a message with an expiration of its own has come."""
        return self.expiry is not None

    def note_expiries(self) -> None:
        """The queue's turn is over: note when entries expire that came in it and are still ready."""
        if self.expiry is not None:
            self.expiry.note_new(self.ready)
            self.expiry.begin_turn()

    def next_expiry(self) -> int:
        """When the next message with an expiration of its own expires; -1 if there is none."""
        if self.expiry is None:
            return -1
        self.expiry.weed_if_stale(self.length(), self.next_behind)
        return self.expiry.next_due()

    def next_behind(self) -> int:
        """The position of the first message that waits behind, strays not counted."""
        stored = NOTHING_TO_READ if self.log is None else self.log.peek()
        return min(stored, self.next_aside())

    # --- looking, without taking ---

    def next_ready(self, last: Entry | None, position: int) -> Entry | None:
        """The ready entry behind `last`, if that is still ready; else the first one beyond `position`."""
        if last is not None and self.is_ready(last):
            following = last.behind
        else:
            following = self.first_beyond(self.ready, position, None)
        return None if following is None or following.position > self.released else following

    def next_stray(self, last: Entry | None, position: int) -> Entry | None:
        """The first stray beyond `position`. The search begins at `last`, so that a walk over very many
        strays takes one step for each.
        """
        if last is not None and not self.is_stray(last):
            last = None
        following = self.first_beyond(self.strays, position, last)
        return None if following is None or following.position > self.released else following

    def first_beyond(self, entries: EntryList, position: int, near: Entry | None) -> Entry | None:
        """The first of these entries beyond a position. The way to it, from `near` if given, is charged."""
        found = entries.first_beyond(position, near)
        self.budget.left -= entries.passed // PASSED_FOR_A_UNIT
        return found

    def sources_behind(self) -> tuple[object, object, object]:
        """The places where messages wait behind. When a purge replaces them, their browsers are of no use."""
        return (self.packed, self.log, self.overflow)

    def browse(self) -> tuple[PackBrowser, LogBrowser | None, LogBrowser | None]:
        """Browsers of what waits behind: packed, in the log, and in the overflow."""
        return (
            PackBrowser(self.packed),
            self.browse_log(),
            None if self.overflow is None else self.overflow.browse(),
        )

    def browse_log(self) -> LogBrowser | None:
        """A browser of what waits in the log; None without one."""
        return None if self.log is None else self.log.browse()

    # --- how much is ready ---

    def keep_all(self) -> None:
        """Never give up a ready entry: the queue's message groups refer to them."""
        self.keeps_all = True

    def ready_bytes(self) -> int:
        """The size of the bodies of the entries, ready and stray."""
        return self.ready.bytes + self.strays.bytes

    def borrow(self) -> bool:
        """Try to borrow memory, to hold about twice as much. Return whether that was granted."""
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
        """Whether the lane holds at least a quarter of what it may."""
        return 4 * self.ready.count >= self.ready_max or 4 * self.ready.bytes >= self.ready_bytes_max

    def return_loan(self) -> None:
        if self.loan:
            self.memory.take_back(self, self.loan)
            self.loan = 0
            self.ready_max = READY_FREE_MAX // self.share
            self.ready_bytes_max = READY_FREE_BYTES_MAX // self.share

    def set_consumed(self, consumed: bool) -> None:
        if self.consumed and not consumed:
            self.return_loan()
            self.memory.shrink_soon(self)
        self.consumed = consumed

    def rest(self) -> None:
        """Nobody is about to read on: let go of what reading needs, and of entries above the limit."""
        if self.log is not None:
            self.log.rest()
        if self.holds_too_much():
            self.memory.shrink_soon(self)

    def holds_too_much(self) -> bool:
        """Whether the lane holds so much more than it may that giving entries up is worth while."""
        if self.ready.count + self.strays.count > self.ready_max + READY_SLACK:
            return True
        return self.ready_bytes() > self.ready_bytes_max + READY_SLACK_BYTES

    def is_over(self) -> bool:
        """Whether the lane holds more than it may."""
        if self.ready.count + self.strays.count > self.ready_max:
            return True
        return self.ready_bytes() > self.ready_bytes_max

    def give_up(self, most: int) -> int:
        """Give up entries whose messages are on disk, the last ones first, until the lane is within its
        limits, but at most `most`. Return how many left the memory or the ready entries.
        """
        if self.log is None or self.keeps_all or not self.holds_too_much():
            return 0
        if self.expiry is not None:
            self.expiry.note_new(self.ready)
        given = self.give_up_strays(most)
        while given < most and self.ready.count > 1 and self.is_over():
            self.give_up_last()
            given += 1
        self.log.rest()
        self.budget.left -= given
        return given

    def give_up_strays(self, most: int) -> int:
        """Give up strays, at most `most` of them. Transient ones are passed by, on the way to others."""
        given = passed = 0
        entry = self.strays.tail
        while self.stored_strays and given < most and passed < STRAYS_PASSED_MAX and self.is_over():
            assert entry is not None, "there is a stray that can be given up"
            before = entry.before
            if entry.message.persistent:
                self.take_stray(entry)
                self.give_back(entry)
                given += 1
            else:
                passed += 1
            entry = before
        self.budget.left -= passed // PASSED_FOR_A_UNIT
        return given

    def give_up_last(self) -> None:
        """Give up the last ready entry. A transient one becomes a stray: those before it will be behind."""
        entry = self.ready.tail
        assert entry is not None, "there is a ready entry"
        self.ready.remove(entry)
        if entry.message.persistent:
            self.give_back(entry)
        else:
            self.strays.insert(entry)

    def give_back(self, entry: Entry) -> None:
        """The message of an entry that was taken out of its list waits in the log again."""
        assert self.log is not None, "it has a log"
        self.log.give_back(entry)
        if self.expiry is not None:
            self.expiry.forget(entry)

    # --- what the log has to know ---

    def note_delivered(self, entry: Entry) -> None:
        if self.log is not None and entry.message.persistent:
            self.log.delivered(entry.position, entry.delivery_count + 1)

    def done(self, entry: Entry) -> None:
        if self.log is not None and entry.message.persistent:
            self.log.acked(entry.position)

    # --- all of it ---

    def length(self) -> int:
        """How many messages there are, ready or behind."""
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

    def clear(self, *, deleted: bool) -> Iterator[int]:
        """Drop all messages. Return what that leaves to do, as steps that yield their cost: to free entries
        and, unless the queue is deleted, to note on disk that the messages are done with.
        """
        purging: Iterator[int] = iter(())
        self.return_loan()
        self.memory.forget(self)
        if self.log is not None and deleted:
            self.log.delete()
        elif self.log is not None:
            purging = self.log.purge()
        if self.overflow is not None:
            self.overflow.delete()
            self.overflow = None
        if self.expiry is not None:
            self.expiry.clear()
        dropped, self.ready, self.packed = self.ready, EntryList(), Pack(self.memory)
        dropped.extend(self.strays)
        self.stored_strays = 0
        return chain(self.dropping(dropped), purging)

    def dropping(self, entries: EntryList) -> Iterator[int]:
        """Free entries that were dropped. A queue that was deleted meanwhile has no log any more."""
        while entries.count:
            if self.log is None or self.queue is None:
                entries.drop(DROP_STEP)
                yield DROP_STEP
            else:
                self.done(entries.pop_head())
                yield 1

    def detach(self) -> None:
        """The log belongs to another node now."""
        self.log = self.gate = None

    def end(self) -> None:
        """The queue is deleted: let go of it, since the queue and its lanes would form a cycle."""
        self.queue = None  # type: ignore[assignment]  # everywhere else it is a Queue

    def release_memory(self) -> None:
        """The broker ends: free the entries, since the garbage collector does not know them."""
        for entries in (self.ready, self.strays):
            entries.drop(entries.count)

    def take_over(self, log: MessageLog, position: int) -> Iterable[tuple[int, int, int]]:
        """Take over a log with its messages; `position` is the last one that was used. Return the time,
        position and location of each message that is due at a time of its own.
        """
        self.log = log
        self.position = position
        if log.holds_back:
            self.gate = Gate(log.safety, self.release)
            self.released = position
        return log.due()

    def restore(self, log: MessageLog, position: int) -> None:
        """Take over a log with its messages, and note when they expire."""
        for due_ms, due_position, location in self.take_over(log, position):
            if self.expiry is None:
                self.expiry = Expiry()
            self.expiry.note_behind(due_ms, due_position, location)
