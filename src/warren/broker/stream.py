"""A stream: messages stay, in order, each with its offset, and every consumer reads them for itself.

Consumers only get messages that are safe on disk. An ack lets a consumer get more, up to its
`prefetch_count`; besides, the broker can remember a consumer's offset by its acks. Messages that are too old
or too many are dropped from the front, in whole segments.

    offset = position - 1    positions, as in all queues, count from 1
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from warren.amqp.errors import NotImplementedByBroker, PreconditionFailed
from warren.broker.clock import follow
from warren.broker.consumer import Consumer, ConsumeRequest, View
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.outcome import ON_ITS_WAY, REFUSED
from warren.broker.queue import Queue
from warren.broker.rules import Rules
from warren.broker.selector import Selector
from warren.broker.store import MessageLog, Store, StreamLog, StreamReader
from warren.broker.stream_filter import filter_of
from warren.broker.stream_offset import is_tracked, start_position
from warren.broker.stream_walk import StreamWalk
from warren.broker.timetable import Appointment

NOT_YET_FOUND = -2  # what `StreamReader.ready` returns if others should have their turn first
SENT_A_TURN_MAX = 256 * 1024  # bytes, to one consumer
SENT_OVERHEAD = 64  # bytes that a delivery counts for, besides the body
RETENTION_LOOK_MS_MAX = 60_000  # between two looks at the age of messages
NAMES_MAX = 10_000  # names of one stream that have an offset
NEVER = 2**64 - 1  # beyond all positions


class StreamView(View):
    """Where a consumer is in its stream.

    If the broker remembers the consumer's offset, the view notes which positions are out with the consumer
    and which of them are settled. The remembered offset is that of the last position before the first gap.
    """

    def __init__(self, reader: StreamReader, name: str | None) -> None:
        self.reader = reader
        self.name = name  # under which the offset is remembered; None if it is not
        self.out: deque[int] = deque()  # positions that are out, and settled ones behind the first of these
        self.done: set[int] = set()  # the settled positions among `out`
        self.counts_before = NEVER  # the first position that was given back: the offset stays before it

    def sent(self, position: int) -> None:
        if position < self.counts_before:
            self.out.append(position)

    def settled(self, position: int) -> int | None:
        """The consumer has settled a position. Return the last position before the first gap, if it has
        changed.
        """
        if position >= self.counts_before:
            return None
        self.done.add(position)
        last = None
        while self.out and self.out[0] in self.done:
            last = self.out.popleft()
            self.done.discard(last)
        return last

    def given_back(self, position: int) -> None:
        """The consumer has given a position back, and will not settle it."""
        if position >= self.counts_before:
            return
        self.counts_before = position
        while self.out and self.out[-1] >= position:
            self.done.discard(self.out.pop())

    def __repr__(self) -> str:
        return f"<StreamView {self.name!r}: {len(self.out or ())} positions out>"


def stream_view(consumer: Consumer) -> StreamView:
    view = consumer.view
    assert isinstance(view, StreamView), "streams make no others"
    return view


class Stream(Queue):
    lets_go = False

    def __init__(self, *identity: Any, **properties: Any) -> None:
        super().__init__(*identity, **properties)
        self.log: StreamLog | None = None  # None until the stream is opened
        self.readers: list[Consumer] = []
        self.watchers: list[Callable[[], None]] = []  # called when there is more to read, and at the end
        self.position = 0  # of the last message that was published
        self.newest_ms = 0  # its time
        self.retention: Appointment | None = None  # to look again for messages that are too old
        self.awaiting = False  # whether the stream will hear when what was published is safe
        self.going_on = False  # whether `go_on` will be called
        self.served = 0  # the index of the consumer that is served first the next time

    def open(self, store: Store) -> None:
        if self.log is None:
            self.log, self.position = store.open_stream(self.vhost, self.name)
            self.safety = self.log.safety
            self.newest_ms = self.log.newest_ms()
            if self.log.holds_back:
                self.awaiting = True  # for ever: the log tells
                self.log.when_more_is_safe(self._more_is_safe)
            self.set_rules(self.rules)

    # --- on the path of every message ---

    def publish(self, message: Message) -> int:
        """Append a message. Times never go down within a segment, so that they can be searched. If the clock
        was set back far, they go down with a new segment: else `x-max-age` would not work until the clock has
        caught up. `warren perf stream` watches this, and `serve`.
        """
        if self.log is None:  # another node leads the stream now
            return REFUSED
        self.newest_ms = follow(self.newest_ms, self.clock.time_ms)
        self.position += 1
        self.log.append(message, self.position, self.newest_ms)
        self.tally.published += 1
        if not self.awaiting:
            self._await()
        return ON_ITS_WAY

    def _await(self) -> None:
        self.awaiting = True
        self.opened_log().safety.when_safe(self._is_safe)

    def _is_safe(self, _round: int) -> None:
        """A round is over, and consumers may get what it wrote. Later messages need another round."""
        self.awaiting = False
        if not self.opened_log().all_is_safe():
            self._await()
        self._more_is_safe()

    def _more_is_safe(self) -> None:
        self.touch()
        self._retain()
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        for tell in self.watchers:
            tell()

    def touch(self) -> None:
        if not self.touched and self.readers and not self.deleted:
            self.touched = True
            self.touched_queues.append(self)

    def drain(self) -> None:
        self.touched = False
        if self.deleted or self.paused:
            return
        more = False
        first = self.served
        for index in range(len(self.readers)):
            if self.budget.draining <= 0:
                more = True  # the remaining consumers are served first in the next turn
                break
            self.served = (first + index + 1) % len(self.readers)
            if self.serve(self.readers[(first + index) % len(self.readers)]):
                more = True
        if more and not self.going_on:
            self.going_on = True
            self.surroundings.timers.call_soon(self.go_on)

    def go_on(self) -> None:
        """Go on with what was too much for the last turn."""
        self.going_on = False
        self.touch()
        self.surroundings.turns.after()

    def serve(self, consumer: Consumer) -> bool:
        """Deliver a consumer's share of this turn; return whether there is more for it. For a consumer that
        can take no message, none is read: of a thousand consumers, most wait for acks.
        """
        if not consumer.can_take(0):
            return False
        view = stream_view(consumer)
        reader = view.reader
        sent = 0
        while sent < SENT_A_TURN_MAX:
            size = reader.ready()
            if size < 0:
                return size == NOT_YET_FOUND
            if not consumer.can_take(size):
                return False
            entry = Entry.__new__(Entry)  # faster than a call of __init__, as in `EntryList.append_new`
            entry.message = reader.take()
            entry.queue = self
            entry.position = reader.next_position() - 1
            entry.size = size
            self.unacked += 1
            self.tally.delivered += 1
            self.type_tally.delivered += 1
            self.delivered_bytes += size
            sent += size + SENT_OVERHEAD
            delivery_tag = consumer.deliver(entry)
            if view.name is not None:
                view.sent(entry.position)
            self.budget.draining -= 1
            if self.events.delivered:
                self.tell_drained(entry, consumer, delivery_tag)
                if self.budget.draining <= 0:
                    return True
        return True

    def settle(self, entry: Entry) -> None:
        self.unacked -= 1
        self.tally.acked += 1
        self.type_tally.acked += 1
        if entry.consumer is not None:
            view = stream_view(entry.consumer)
            if view.name is not None:
                self.remember(view, entry.position)

    # --- consumers ---

    def view_for(self, request: ConsumeRequest) -> StreamView:
        what = self.what
        if request.has_channel_limit:
            raise NotImplementedByBroker(f"{what} does not support global qos")
        if request.no_ack:
            raise NotImplementedByBroker(f"automatic acknowledgement not supported by stream queues {what}")
        if not request.prefetch_count:
            raise PreconditionFailed(f"consumer prefetch count is not set for '{what}'")
        name = request.tag if is_tracked(request.arguments) else None
        if name is not None and not request.chose_tag:
            raise PreconditionFailed(f"to remember an offset in {what}, the consumer needs a tag of its own")
        if name is not None:
            self.check_name(name)
        log = self.opened_log()
        known = None if name is None else log.offsets.get(name)
        position = start_position(request.arguments, log, known, self.clock.refresh())
        return StreamView(log.reader(position, filter_of(request.arguments)), name)

    def opened_log(self) -> StreamLog:
        if self.log is None:
            raise self.not_here()
        return self.log

    def add_consumer(self, consumer: Consumer) -> None:
        self.admit(consumer)
        self.readers.append(consumer)
        self.had_consumer = True
        self.touch()

    def remove_consumer(self, consumer: Consumer) -> None:
        consumer.cancelled = True
        if consumer in self.readers:
            self.readers.remove(consumer)
        if self.exclusive_consumer is consumer:
            self.exclusive_consumer = None

    def remember(self, view: StreamView, position: int) -> None:
        """A consumer whose offset is remembered has settled a position."""
        last = view.settled(position)
        if last is not None and view.name is not None and not self.deleted:
            self.store_offset(view.name, last - 1)

    def take_back(self, entry: Entry) -> None:
        """The message is still in the stream; but the consumer's offset must stay before it."""
        self.unacked -= 1
        if entry.consumer is not None:
            stream_view(entry.consumer).given_back(entry.position)
        self.touch()

    def requeue(self, entry: Entry) -> None:
        """A nack is an ack: the message stays in the stream, and nobody gets it twice."""
        self.settle(entry)

    def reject(self, entry: Entry) -> None:
        """A reject is an ack, too: streams have no dead letters."""
        self.settle(entry)

    def get(self, no_ack: bool) -> Entry | None:
        raise NotImplementedByBroker(f"basic.get not supported by stream queues {self.what}")

    def forget(self, entry: Entry) -> None:
        """Messages stay in a stream until they are too old or too many."""

    def redelivered(self, entry: Entry) -> None:
        """A stream does not count deliveries."""

    @property
    def consumers(self) -> list[Consumer]:
        return self.readers[:]

    @property
    def is_worked_off(self) -> bool:
        """Consumers take no messages out of a stream, so publishers are not held back for them."""
        return False

    # --- offsets ---

    @property
    def first_offset(self) -> int:
        return self.opened_log().first_position() - 1

    @property
    def next_offset(self) -> int:
        """The offset behind the last message that is safe."""
        return self.opened_log().safe_position()

    @property
    def named_offsets(self) -> dict[str, int]:
        return self.opened_log().offsets

    def lags(self) -> dict[str, int]:
        """How many messages each reader is behind the end: by the tags of consumers, and by names of offsets.
        An offset of the same name as a consumer counts, since the consumer has acknowledged up to there.
        """
        if self.log is None:  # another node leads the stream now
            return {}
        end, lags = self.next_offset, dict[str, int]()
        for consumer in self.readers:
            behind = end - (stream_view(consumer).reader.next_position() - 1)
            lags[consumer.tag] = max(behind, lags.get(consumer.tag, 0))
        lags |= {name: max(end - 1 - offset, 0) for name, offset in self.named_offsets.items()}
        return lags

    def check_name(self, name: str) -> None:
        """406 if the name is new and there are too many: a client that makes up a new name each time would
        fill memory and disk.
        """
        if name not in self.named_offsets and len(self.named_offsets) >= NAMES_MAX:
            raise PreconditionFailed(
                f"stream '{self.name}' in vhost '{self.vhost}' has offsets of {NAMES_MAX} names already"
            )

    def store_offset(self, name: str, offset: int) -> None:
        self.opened_log().note_offset(name, offset)

    def forget_offset(self, name: str) -> None:
        self.opened_log().note_offset(name, None)

    # --- the rest ---

    def place_on_disk(self, message: Message) -> tuple[str, int]:
        return "", self.position

    def walk(self, selector: Selector | None = None, above: int = 0) -> StreamWalk:
        return StreamWalk(self, self.opened_log(), selector, above, self.budget)

    def length(self) -> int:
        return 0 if self.log is None else self.log.count

    def body_bytes(self) -> int:
        """The size of the segments: a stream does not count the bodies of its messages."""
        return 0 if self.log is None else self.log.size_bytes

    def logs(self) -> list[tuple[str, MessageLog | StreamLog]]:
        return [] if self.log is None else [("", self.log)]

    def set_rules(self, rules: Rules) -> None:
        self.rules = rules
        if self.log is not None:
            self.log.set_segment_bytes(rules.stream_max_segment_size_bytes)
            self._retain()

    def _retain(self) -> None:
        """Drop segments that are too many or too old, and look again when the next one will be too old."""
        rules, log = self.rules, self.opened_log()
        if self.deleted or (
            rules.max_age is None and rules.max_length_bytes is None and rules.max_length is None
        ):
            return
        now_ms = self.clock.time_ms
        since_ms = None if rules.max_age is None else now_ms - rules.max_age
        oldest_ms = log.retain(rules.max_length_bytes, rules.max_length, since_ms)
        if rules.max_age is not None and oldest_ms and self.retention is None:
            due_ms = max(oldest_ms + rules.max_age + 1, now_ms + 1)
            self.retention = self.surroundings.timetable.at(
                min(due_ms, now_ms + RETENTION_LOOK_MS_MAX), self._look_again
            )

    def _look_again(self) -> None:
        self.retention = None
        self._retain()

    def purge(self) -> tuple[int, Iterator[int]]:
        """Clients cannot purge a stream; its messages only go when it is deleted."""
        if not self.deleted:
            raise NotImplementedByBroker(f"queue.purge not supported by stream queues {self.what}")
        return self.length(), iter(())

    def detach(self) -> None:
        self.log = None

    def end(self) -> None:
        self.surroundings.timetable.drop(self.retention)
        if self.log is not None:
            self.log.delete()
        super().end()
        self._tell_watchers()


def stream_of(queue: Queue) -> Stream | None:
    """The queue, if it is a stream: for those who need named offsets, which no other kind has."""
    return queue if isinstance(queue, Stream) else None
