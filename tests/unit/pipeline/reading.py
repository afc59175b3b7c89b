"""What the tests of readers share."""

from __future__ import annotations

from collections.abc import Iterable

from warren.pipeline.segments.log import SegmentLog
from warren.pipeline.segments.plan import Partition, Span, plan
from warren.pipeline.segments.reading import Wanted, read_partition


def whole(
    log: SegmentLog, name: str, *, min_partitions: int = 0, first: int = 0, end: int | None = None
) -> list[Partition]:
    contents = log.contents("/", name)
    span = Span(contents, max(first, contents.first_offset), contents.next_offset if end is None else end)
    return plan([span], min_partitions=min_partitions, can_locate=log.can_locate)


def read(log: SegmentLog, partitions: Iterable[Partition], *, fail: bool = True) -> list[tuple[int, bytes]]:
    """Offset and body of each message."""
    wanted = Wanted(fail_on_data_loss=fail)
    batches = [batch for partition in partitions for batch in read_partition(log, partition, wanted)]
    return [
        (offset, body)
        for batch in batches
        for offset, body in zip(batch["offset"].to_pylist(), batch["body"].to_pylist(), strict=True)
    ]


def numbered(offsets: Iterable[int]) -> list[tuple[int, bytes]]:
    """Offsets and bodies, as `QueueDirectory.append` makes them."""
    return [(offset, b"m%d" % offset) for offset in offsets]
