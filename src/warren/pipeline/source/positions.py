"""How far a streaming query is, in the form in which Spark writes it to the checkpoint: by stream the first
offset that was not read yet and, under a name that no queue can have, the ids of these streams.

    {"orders": 5, "": {"orders": "2b7e151628aed2a6-17"}}

By its id, a stream that was deleted and made anew is not taken for the one that was read. Checkpoints of
earlier versions have the offsets only: {"orders": 5}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from warren.pipeline.segments.log import LogExtent

SparkOffset: TypeAlias = dict[str, int | dict[str, str]]
IDS = ""


def split(offset: Mapping[str, int | dict[str, str]]) -> tuple[dict[str, int], dict[str, str]]:
    """The offsets by stream, and the ids of those streams whose id is known."""
    ids = offset.get(IDS)
    offsets = {name: place for name, place in offset.items() if isinstance(place, int)}
    return offsets, dict(ids) if isinstance(ids, dict) else {}


def joined(offsets: Mapping[str, int], ids: Mapping[str, str]) -> SparkOffset:
    known = {name: ids[name] for name in sorted(offsets) if ids.get(name)}
    found: SparkOffset = {name: offsets[name] for name in sorted(offsets)}
    return found | {IDS: known} if known else found


def ids_of(streams: Iterable[LogExtent]) -> dict[str, str]:
    return {each.queue.name: each.queue.stream_id for each in streams if each.queue.stream_id}


def differ(one: str | None, other: str | None) -> bool:
    """Whether these ids are known to be of two streams: an empty or missing id may be of any."""
    return bool(one) and bool(other) and one != other
