"""What the stores that keep copies of a log tell each other, as plain values.

A log is led by one store and copied by others, segment by segment, byte for byte. Each segment belongs to one
epoch, the term of one leader, and only that leader has ever appended to it. So if two stores have a segment
with the same base and epoch, one of the two is a prefix of the other.

While a follower is in step, its leader sends it `Records`, `Marks`, `Drop` and `NamedOffset` in the order in
which they happened. A follower that begins to follow tells what it has (`SegmentState`), and is sent a plan
first, which also has `Truncate`, `SetAside`, `AllMarks` and `RemoveLog`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class LogId(NamedTuple):
    """Which log of a shard: a queue's own, or a part of it."""

    queue: int  # the queue's number, which is never used for another queue
    part: str = ""  # such as "priority-3"; empty for the queue's own log


class SegmentState(NamedTuple):
    """What a store has of one segment."""

    base: int  # the position of its first record, after which its files are named
    epoch: int  # of the leader that began it; 0 if a node did that was alone
    length: int  # bytes of its `.seg` file, with the header, up to the end of the last whole record
    damaged: bool = False  # whether some of these bytes are not what was written


class Records(NamedTuple):
    """Bytes that were appended to a segment. At offset 0 they begin with the segment's header."""

    log: LogId
    base: int
    epoch: int
    offset: int  # where they begin in the `.seg` file
    last: int  # the position of the last record in them
    count: int  # type: ignore[assignment]  # how many records they are; a tuple's own `count` is not used
    data: bytes


class Marks(NamedTuple):
    """Marks that were added to a segment's ack file: without its header."""

    log: LogId
    base: int
    epoch: int
    data: bytes


class Drop(NamedTuple):
    """A segment was dropped: nothing in it is wanted any more."""

    log: LogId
    base: int
    epoch: int


class NamedOffset(NamedTuple):
    """A reader of a stream is done with the messages up to this offset; None: its name is forgotten."""

    log: LogId
    name: str
    offset: int | None


class Truncate(NamedTuple):
    """Of a segment, keep this many bytes of records. Records beyond are set aside, and their marks go."""

    log: LogId
    base: int
    epoch: int
    length: int


class SetAside(NamedTuple):
    """A segment that the leader does not have goes: what was never confirmed is kept for the operator."""

    log: LogId
    base: int
    epoch: int


class AllMarks(NamedTuple):
    """All marks of a segment, in place of those that the follower has."""

    log: LogId
    base: int
    epoch: int
    data: bytes


class RemoveLog(NamedTuple):
    """A log whose queue is deleted goes, with all that is in it."""

    log: LogId


LogChange: TypeAlias = Records | Marks | Drop | NamedOffset | Truncate | SetAside | AllMarks | RemoveLog
