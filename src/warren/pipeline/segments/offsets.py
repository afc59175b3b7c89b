"""Where to start and where to end: turns the options, which are worded as Kafka's, into offsets."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from warren.pipeline.segments.decode import OPEN_END, walk
from warren.pipeline.segments.errors import BadOption, SegmentGone
from warren.pipeline.segments.log import Contents, LogExtent, SegmentLog, SourceSegment
from warren.pipeline.segments.reading import Loss
from warren.storage.format import HEADER_BYTES, RECORD_HEAD_BYTES, TIME_AT, uint64_at

EARLIEST, LATEST = -2, -1
WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True)
class OffsetAtTime:
    """Stands for the offset of the first message that arrived at this time or later."""

    ms: int


Json: TypeAlias = Any
Place: TypeAlias = int | OffsetAtTime  # an offset, EARLIEST or LATEST
Places: TypeAlias = Place | dict[str, Place]  # one for all queues, or one for each by name


def parse_offsets(option: str, text: str) -> Places:
    """The text is `earliest`, `latest`, a number (for a single queue), or JSON with a number for each."""
    text = text.strip()
    word = WORDS.get(text.lower())
    if word is not None:
        return word
    if text.isdecimal():
        return int(text)
    told = _each(option, text, 'earliest, latest, a number or JSON such as {"orders": 5}')
    for name, offset in told.items():
        if type(offset) is not int or offset < EARLIEST:
            raise BadOption(
                f"{option} has {json.dumps(offset)} for '{name}': give an offset, -2 (earliest) or -1"
            )
    return told


def parse_times(option: str, text: str) -> dict[str, Place]:
    """The text is JSON with a time for each queue, in a form that `parse_time` takes."""
    told = _each(option, text, 'JSON such as {"orders": "2026-01-31T12:00:00Z"}')
    return {name: parse_time(f"{option} for '{name}'", str(moment)) for name, moment in told.items()}


def _each(option: str, text: str, expected: str) -> dict[str, Json]:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not told:
        raise BadOption(f"{option} must be {expected}, not: {text}")
    return told


def parse_time(option: str, text: str) -> OffsetAtTime:
    """The text is milliseconds since 1970, or ISO 8601; a time without a zone is in UTC."""
    text = text.strip()
    if text.isdecimal():
        return OffsetAtTime(int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"{option} must be milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z, not: {text}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return OffsetAtTime(round(moment.timestamp() * 1000))


def check_names(option: str, places: Places, names: Collection[str]) -> None:
    """Refuse JSON that lacks a queue which is read or names another one, and a number for several queues."""
    if isinstance(places, int) and places >= 0 and len(names) != 1:
        raise BadOption(
            f"{option} is {places}, but {len(names)} queues are read: "
            'give an offset for each, as JSON such as {"orders": 5}'
        )
    if isinstance(places, dict) and places.keys() != set(names):
        lacking, unknown = sorted(set(names) - places.keys()), sorted(places.keys() - set(names))
        what = (
            f"lacks {', '.join(lacking)}"
            if lacking
            else f"has {', '.join(unknown)}, which is not subscribed to"
        )
        by_time = any(isinstance(place, OffsetAtTime) for place in places.values())
        given, wanted = (f"{option}ByTimestamp", "a time") if by_time else (option, "an offset")
        raise BadOption(f"{given} {what}: give {wanted} for each queue that is read")


def place_in(places: Places, name: str) -> Place:
    return places[name] if isinstance(places, dict) else places


def resolve(log: SegmentLog, contents: Contents, places: Places) -> int:
    """The offset that `places` mean in this queue."""
    place = place_in(places, contents.queue.name)
    if isinstance(place, OffsetAtTime):
        return offset_at(log, contents, place.ms)
    if place == EARLIEST:
        return contents.first_offset
    return contents.next_offset if place == LATEST else place


def checked_start(contents: LogExtent, offset: int, loss: Loss) -> int:
    """The offset itself, if the stream has it; otherwise report the loss, and start at the first offset."""
    if not contents.queue.is_stream or contents.first_offset <= offset <= contents.next_offset:
        return offset
    if offset < contents.first_offset:
        loss.gone(offset, contents.first_offset)
    else:
        loss.beyond(offset, contents.next_offset)
    return contents.first_offset


def offset_at(log: SegmentLog, contents: Contents, time_ms: int) -> int:
    """The first offset of a stream with this time or a later one, found by bisection. Where the broker's
    clock was set back by much, times are not in order, and another offset near there may be found.
    """
    segments = [segment for segment in contents.segments if segment.end_offset > segment.first_offset]
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        first_ms = _first_time(log, contents, segments[middle])
        if first_ms is None or first_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return contents.first_offset
    return _offset_in(log, contents, segments[low - 1], time_ms)


def _first_time(log: SegmentLog, contents: Contents, segment: SourceSegment) -> int | None:
    """The time of a segment's first record; None if the segment is gone: then it was the oldest."""
    try:
        with closing(log.open(contents.queue, segment)) as opened:
            head = opened.read(HEADER_BYTES, RECORD_HEAD_BYTES)
    except SegmentGone:
        return None
    return uint64_at(head, TIME_AT)


def _offset_in(log: SegmentLog, contents: Contents, segment: SourceSegment, time_ms: int) -> int:
    at, above, wanted = HEADER_BYTES, segment.base - 1, log.chunk_bytes
    try:
        with closing(log.open(contents.queue, segment)) as opened:
            while at < segment.size_bytes:
                data = opened.read(at, min(wanted, segment.size_bytes - at))
                if not data:
                    break
                used, above, _, needed = walk(data, 0, above, OPEN_END, time_ms)
                at += used
                if not 0 < needed <= segment.size_bytes - at:
                    break
                wanted = max(log.chunk_bytes, needed)
    except SegmentGone:
        return segment.end_offset
    return above
