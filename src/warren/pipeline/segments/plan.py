"""Plans which task reads what: from offsets to the slices of segments that each task gets.

Every offset from the start to the end is in exactly one slice. A segment is cut into several slices only if
an offset can be found in it at little cost, or if the user asks for a number of partitions. Small slices are
put together, and small queues share a task. Planning reads no records, so its cost does not depend on the
length of segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from warren.pipeline.segments.log import Contents, QueueEnds, QueueRef, Slice, SourceSegment

PARTITION_BYTES = 32 << 20
SHARED_BYTES = 4 << 20  # queues share a task up to this: to read it takes about as long as to start a task
SLICE_COST_BYTES = 64 << 10  # to open a slice costs about as much as to read this
MARKS_MAX = 64  # remembered for each queue

T = TypeVar("T")


@dataclass(frozen=True)
class Portion:
    """What one task reads of one queue."""

    queue: QueueRef
    slices: tuple[Slice, ...]

    @property
    def size(self) -> int:
        """About how many bytes it has, plus the cost of opening each slice, expressed in bytes."""
        return sum(_size(each) + SLICE_COST_BYTES for each in self.slices)


@dataclass(frozen=True)
class Partition:
    """What one task reads of all queues."""

    portions: tuple[Portion, ...]


@dataclass(frozen=True)
class Span:
    """The offsets that are wanted of a queue, from `first_offset` to before `end_offset`."""

    contents: Contents
    first_offset: int
    end_offset: int


class Marks:
    """Remembers at which byte some offsets are: the end of the newest segment at each look. The messages of
    the next batch begin there, so no task has to read the segment from its start to find them.
    """

    def __init__(self) -> None:
        # By name and stream id: (base of the segment, offset, byte) of each mark, in order.
        self._of: dict[tuple[str, str], list[tuple[int, int, int]]] = {}

    def note(self, ends: QueueEnds) -> None:
        tail = ends.tail
        if tail is not None:
            known = self._of.setdefault((ends.queue.name, ends.queue.stream_id), [])
            mark = tail.base, tail.end_offset, tail.size_bytes
            if tail.end_offset > tail.first_offset and (not known or known[-1] < mark):
                known.append(mark)
                del known[:-MARKS_MAX]

    def start(self, queue: QueueRef, segment: SourceSegment, offset: int) -> tuple[int, int] | None:
        """The last mark (byte, offset) in this segment that is not behind the offset."""
        known = self._of.get((queue.name, queue.stream_id), [])
        found = bisect_right(known, (segment.base, offset, segment.size_bytes)) - 1
        if found < 0 or known[found][0] != segment.base:
            return None
        return known[found][2], known[found][1]


def plan(
    spans: Iterable[Span], *, min_partitions: int = 0, can_locate: bool, marks: Marks | None = None
) -> list[Partition]:
    cut = [(span.contents.queue, _slices(span, marks)) for span in spans]
    target = _target(PARTITION_BYTES, (_size(each) for _, slices in cut for each in slices), min_partitions)
    portions = []
    for queue, slices in cut:
        small = [
            piece
            for each in slices
            for piece in (_pieces(each, target) if can_locate or min_partitions else [each])
        ]
        portions += [Portion(queue, tuple(group)) for group in _groups(small, target, _size)]
    shared = _target(SHARED_BYTES, (each.size for each in portions), min_partitions)
    return [Partition(tuple(group)) for group in _groups(portions, shared, lambda each: each.size)]


def _target(most: int, sizes: Iterable[int], min_partitions: int) -> int:
    """How large a part may be: `most`, or less to get `min_partitions` parts."""
    return max(1, min(most, sum(sizes) // min_partitions)) if min_partitions else most


def _slices(span: Span, marks: Marks | None) -> list[Slice]:
    slices = []
    for segment in span.contents.segments:
        first = max(span.first_offset, segment.first_offset)
        end = min(span.end_offset, segment.end_offset)
        if first < end:
            start = marks.start(span.contents.queue, segment, first) if marks is not None else None
            slices.append(Slice(segment, first, end, *(start or ())))
    return slices


def _size(part: Slice) -> int:
    """About how many bytes the slice has."""
    segment = part.segment
    return (
        segment.size_bytes
        * (part.end_offset - part.first_offset)
        // (segment.end_offset - segment.first_offset)
    )


def _pieces(whole: Slice, target: int) -> list[Slice]:
    count = min(-(-_size(whole) // target), whole.end_offset - whole.first_offset) or 1
    length = whole.end_offset - whole.first_offset
    cuts = [whole.first_offset + length * i // count for i in range(count + 1)]
    return [Slice(whole.segment, first, end, whole.at, whole.at_offset) for first, end in pairwise(cuts)]


def _groups(parts: Sequence[T], target: int, size_of: Callable[[T], int]) -> list[list[T]]:
    """Put neighbours together, each group up to the target size."""
    groups: list[list[T]] = []
    filled = 0
    for each in parts:
        size = size_of(each)
        if not groups or filled + size > target:
            groups.append([])
            filled = 0
        groups[-1].append(each)
        filled += size
    return groups


def limit(start: Mapping[str, int], latest: Mapping[str, int], offsets_max: int) -> dict[str, int]:
    """Where a batch of at most `offsets_max` offsets ends in each queue.

    Queues share the limit by how far each is behind. A queue that is only a little behind still goes on by at
    least one offset, so that it does not wait for the others. If more queues are behind than the limit allows
    offsets, those that are furthest behind go on by one.
    """
    behind = {name: max(0, latest[name] - start.get(name, latest[name])) for name in latest}
    total = sum(behind.values())
    if total <= offsets_max:
        return dict(latest)
    most_first = sorted((name for name in behind if behind[name]), key=lambda name: (-behind[name], name))
    shares = {name: max(1, behind[name] * offsets_max // total) for name in most_first}
    left = offsets_max - sum(shares.values())
    for name in most_first:  # spread what rounding has left over, or take back what it gave too much
        more = max(1 - shares[name], min(left, behind[name] - shares[name]))
        shares[name] += more
        left -= more
    for name in most_first[offsets_max:]:
        shares[name] = 0
    return {name: start[name] + shares[name] if name in shares else latest[name] for name in latest}


def limit_bytes(
    contents: Mapping[str, Contents], start: Mapping[str, int], end: Mapping[str, int], bytes_max: int
) -> dict[str, int]:
    """Where a batch of about `bytes_max` bytes ends in each queue, and not behind `end`.

    It is an estimate by the mean size of a message in each segment, since to know their sizes means to read
    them. Each queue that is behind goes on by at least one message.
    """
    slices = {
        name: _slices(Span(contents[name], start[name], end[name]), None)
        for name in contents
        if start.get(name, end[name]) < end[name]
    }
    sizes = {name: sum(_size(each) for each in parts) for name, parts in slices.items()}
    total = sum(sizes.values())
    if total <= bytes_max:
        return dict(end)
    shares = {name: _offset_after(parts, sizes[name] * bytes_max // total) for name, parts in slices.items()}
    return {name: shares.get(name) or end[name] for name in end}


def _offset_after(slices: Sequence[Slice], bytes_max: int) -> int:
    """The offset behind about `bytes_max` bytes, and behind the first message; 0 if there is no message."""
    offset = 0
    for each in slices:
        size, length = _size(each), each.end_offset - each.first_offset
        if size > bytes_max:
            return max(offset, each.first_offset + max(length * bytes_max // size, 0 if offset else 1))
        offset = each.end_offset
        bytes_max -= size
    return offset
