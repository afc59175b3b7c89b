"""Ends the moves that were under way when the broker was killed; `move_notes.py` tells why this is exact.

This runs before the logs of queues are read back, and only adds marks to ack files. A message is marked as
done in its old log only if the new log has the same message, so that a note which makes no sense any more
does no harm.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from warren.broker.message import Message
from warren.broker.parameters import Json
from warren.broker.store import MoveRun
from warren.storage.checked_lines import line_content, scan_lines
from warren.storage.files import read_whole, write_file
from warren.storage.format import (
    ACKED,
    ACKS_MAGIC,
    HEADER_BYTES,
    MARK_BYTES,
    base_of,
    encode_header,
    encode_mark,
    records,
    segment_name,
)
from warren.storage.problems import Logger
from warren.storage.table_text import expect


def settle_moves(moves: Path, queues: str, sync: Callable[[str], None], log: Logger) -> None:
    """Go through all notes in the directory `moves`, and remove them."""
    if not moves.is_dir():
        return
    for file in sorted(moves.iterdir()):
        try:
            count = sum(_settle(old, new, pairs, sync) for old, new, pairs in _noted(file, queues))
            if count:
                log.info("messages that were being moved are in their new queue", count=count)
            file.unlink()
        except (OSError, ValueError) as error:
            log.warning("cannot end a move; its last messages may be in both queues", error=str(error))


def _noted(file: Path, queues: str) -> Iterator[tuple[str, str, dict[int, int]]]:
    """For each two logs, the positions in the new log, by those in the old one. A line that is not intact was
    being written when the broker was killed: none of its messages had reached the new log.
    """
    noted: dict[tuple[str, str], dict[int, int]] = {}
    for line in scan_lines(file.read_bytes()):
        if not line.intact:
            continue
        content = line_content(line.raw)
        old, new = (f"{queues}/{expect(int, content.get(key))}" for key in ("from", "to"))
        for run in (_run(expect(list, fields)) for fields in expect(list, content.get("runs"))):
            pairs = noted.setdefault((_log(old, run.old_part), _log(new, run.new_part)), {})
            pairs.update((run.old_position + i, run.new_position + i) for i in range(run.length))
    for (old, new), pairs in noted.items():
        yield old, new, pairs


def _run(fields: list[Json]) -> MoveRun:
    kinds = (str, int, str, int, int)
    return MoveRun(*(expect(kind, value) for kind, value in zip(kinds, fields, strict=True)))


def _settle(old: str, new: str, pairs: dict[int, int], sync: Callable[[str], None]) -> int:
    """Mark the messages in the old log that have reached the new one. Return how many they are."""
    arrived, left = _messages(new, pairs.values()), _messages(old, pairs)
    moved = [
        position
        for position, message in left.items()
        if pairs[position] in arrived and _same(message, arrived[pairs[position]])
    ]
    for base, positions in _by_segment(old, moved).items():
        _mark_done(f"{old}/{segment_name(base)}.acks", base, positions, sync)
    return len(moved)


def _log(queue: str, part: str) -> str:
    return f"{queue}/{part}" if part else queue


def _same(message: Message, other: Message) -> bool:
    """But for when they came."""
    return (
        message.body == other.body
        and message.properties == other.properties
        and message.routing_key == other.routing_key
        and message.exchange == other.exchange
    )


def _messages(directory: str, positions: Iterable[int]) -> dict[int, Message]:
    """Those of the messages at these positions that are in a log, by position."""
    found: dict[int, Message] = {}
    for base, wanted in _by_segment(directory, positions).items():
        present = set(wanted)
        for record in records(read_whole(f"{directory}/{segment_name(base)}.seg")):
            if record.position in present:
                found[record.position] = record.message
    return found


def _by_segment(directory: str, positions: Iterable[int]) -> dict[int, list[int]]:
    """The positions, by the base of the segment that each would be in."""
    if not Path(directory).is_dir():
        return {}
    named = (base_of(file.stem) for file in Path(directory).glob("*.seg"))
    bases = sorted(base for base in named if base is not None)
    found: dict[int, list[int]] = {}
    for position in sorted(positions):
        index = bisect(bases, position)
        if index:
            found.setdefault(bases[index - 1], []).append(position)
    return found


def _mark_done(path: str, base: int, positions: list[int], sync: Callable[[str], None]) -> None:
    """Add marks behind the last one that is whole."""
    marks = b"".join(encode_mark(base, first - base, count, ACKED) for first, count in _stretches(positions))
    size = Path(path).stat().st_size if Path(path).exists() else 0
    if size < HEADER_BYTES:
        write_file(path, encode_header(ACKS_MAGIC, base) + marks)
    else:
        os.truncate(path, size - (size - HEADER_BYTES) % MARK_BYTES)
        write_file(path, marks, append=True)
    sync(path)


def _stretches(positions: list[int]) -> Iterator[tuple[int, int]]:
    """Positions that follow each other, as the first one and how many they are."""
    first, count = positions[0], 0
    for position in positions:
        if position != first + count:
            yield first, count
            first, count = position, 0
        count += 1
    yield first, count
