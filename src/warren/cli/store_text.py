"""The output of `warren store`, for people and as JSON.

Names and bodies come from clients, and may contain anything. In output for people, control characters are
written as escapes, so that they cannot steer the terminal.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import lru_cache
from unicodedata import east_asian_width

from warren.amqp.errors import SyntaxFault
from warren.amqp.properties import BasicProperties, decode_properties
from warren.broker.parameters import Json
from warren.cli.text import printable
from warren.storage.data_files import QueueFiles
from warren.storage.inspect import QueueSummary, RecordPlace, StoredMessage
from warren.storage.table_text import table_to_json

HEX_BYTES_MAX = 64
PROPERTIES_CACHED_MAX = 64  # many messages have the same properties
PROPERTY_NAMES = [field.name for field in fields(BasicProperties)]
LINE_BREAKS = "\n\t"
AGES = (("d", 86_400), ("h", 3_600), ("min", 60))
SIZES = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))
HEADINGS = ("VHOST", "QUEUE", "PART", "MESSAGES", "BYTES", "SEGMENTS", "DIRECTORY", "OLDEST", "")
TO_THE_RIGHT = frozenset({"MESSAGES", "BYTES", "SEGMENTS", "DIRECTORY"})
_encode = json.JSONEncoder(check_circular=False).encode  # made once: faster than json.dumps


# --- ls ---


def queues_table(summaries: list[QueueSummary], *, now_ms: int) -> list[str]:
    rows = [HEADINGS, *(_row(summary, now_ms) for summary in summaries)]
    if not any(summary.files.part for summary in summaries):
        rows = [_without_part(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    sums = totals(summaries)
    in_all = f"{sums['queues']} queues, {sums['messages']} messages"
    return [
        *(_aligned(row, widths, rows[0]) for row in rows),
        f"{in_all}, {_size(sums['bytes'])} in {sums['segments']} segments",
    ]


def _row(summary: QueueSummary, now_ms: int) -> tuple[str, ...]:
    files = summary.files
    return (
        printable(files.vhost),
        "?" if files.queue is None else printable(files.queue),
        files.part,
        str(summary.messages),
        _size(summary.bytes),
        str(len(summary.segments)),
        _directory(files) if files.path.exists() else "-",
        "-" if summary.oldest is None else _time_and_age(summary.oldest.time_ms, now_ms),
        ", ".join(_remarks(files)),
    )


def _remarks(files: QueueFiles) -> list[str]:
    return [*(["stream"] if files.is_stream else []), *([] if files.defined else ["not defined"])]


def _directory(files: QueueFiles) -> str:
    return f"{files.path.parent.name}/{files.part}" if files.part else files.path.name


def _without_part(row: tuple[str, ...]) -> tuple[str, ...]:
    at = HEADINGS.index("PART")
    return (*row[:at], *row[at + 1 :])


def _aligned(row: tuple[str, ...], widths: list[int], headings: tuple[str, ...]) -> str:
    cells = []
    for heading, cell, width in zip(headings, row, widths, strict=True):
        blanks = " " * (width - _width(cell))
        cells.append(blanks + cell if heading in TO_THE_RIGHT else cell + blanks)
    return "  ".join(cells).rstrip()


def _width(text: str) -> int:
    """How many columns of a terminal the text takes. Some characters take two."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def _size(count: int) -> str:
    for unit, size in SIZES:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _time_and_age(time_ms: int, now_ms: int) -> str:
    seconds = max(0, now_ms - time_ms) // 1000
    age = next((f"{seconds // size} {unit}" for unit, size in AGES if seconds >= size), f"{seconds} s")
    return f"{_time(time_ms)[:19]}Z ({age})"


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:23] + "Z"
    except (OverflowError, ValueError):  # beyond the year 9999
        return f"{time_ms} ms"


def totals(summaries: list[QueueSummary]) -> dict[str, int]:
    return {
        "queues": sum(not summary.files.part for summary in summaries),
        "messages": sum(summary.messages for summary in summaries),
        "bytes": sum(summary.bytes for summary in summaries),
        "segments": sum(len(summary.segments) for summary in summaries),
    }


def summary_json(summary: QueueSummary) -> dict[str, object]:
    return {
        "vhost": summary.files.vhost,
        "queue": summary.files.queue,
        "part": summary.files.part or None,
        "defined": summary.files.defined,
        "directory": str(summary.files.path) if summary.files.path.exists() else None,
        "messages": summary.messages,
        "bytes": summary.bytes,
        "oldest": _place_json(summary.oldest),
        "newest": _place_json(summary.newest),
        "segments": [asdict(segment) for segment in summary.segments],
        **(_stream_json(summary) if summary.files.is_stream else {}),
        "problems": [str(problem) for problem in summary.problems],
    }


def _stream_json(summary: QueueSummary) -> dict[str, object]:
    """Offsets count from 0, positions from 1."""
    oldest, newest = summary.oldest, summary.newest
    return {
        "type": "stream",
        "first_offset": None if oldest is None else oldest.position - 1,
        "next_offset": None if newest is None else newest.position,
        "offsets": summary.offsets,
    }


def _place_json(place: RecordPlace | None) -> dict[str, object] | None:
    return None if place is None else {**asdict(place), "time": _time(place.time_ms)}


# --- cat, for people ---


def message_text(stored: StoredMessage) -> str:
    message = stored.message
    head = [
        f"--- {stored.part} {stored.position}" if stored.part else f"--- {stored.position}",
        *([f"offset {stored.position - 1}"] if stored.is_of_stream else []),
        _time(stored.time_ms),
        f"exchange {_quoted(message.exchange_name)}",
        f"routing key {_quoted(message.key)}",
        *_fate(stored),
    ]
    return "\n".join(["  ".join(head), *_property_lines(stored), *_body_lines(message.body)])


def _fate(stored: StoredMessage) -> list[str]:
    if stored.acked:
        return ["done with"]
    return [f"redelivered (deliveries: {stored.deliveries})"] if stored.deliveries else []


def _property_lines(stored: StoredMessage) -> Iterable[str]:
    properties = _properties(stored.message.properties)
    if properties is None:
        return [f"properties not understood: {stored.message.properties.hex()}"]
    return [f"{name}: {_value_text(value)}" for name, value in properties.items()]


def _value_text(value: Json) -> str:
    return printable(value) if isinstance(value, str) else json.dumps(value)


def _body_lines(body: bytes) -> list[str]:
    size = f"body: {len(body)} bytes"
    text = _as_text(body)
    if text is None:
        more = " …" if len(body) > HEX_BYTES_MAX else ""
        return [f"{size}, not text", f"  {body[:HEX_BYTES_MAX].hex(' ', 2)}{more}"]
    return [size, *(f"  {printable(line, LINE_BREAKS)}" for line in text.split("\n"))] if text else [size]


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _quoted(text: str) -> str:
    return f'"{printable(text)}"'


# --- cat, for machines ---


def message_json(stored: StoredMessage) -> str:
    message = stored.message
    text = _as_text(message.body)
    properties = _properties(message.properties)
    content = {
        **({"part": stored.part} if stored.part else {}),
        "position": stored.position,
        **({"offset": stored.position - 1} if stored.is_of_stream else {}),
        "time": _time(stored.time_ms),
        "time_ms": stored.time_ms,
        "exchange": message.exchange_name,
        "routing_key": message.key,
        "persistent": message.persistent,
        "deliveries": stored.deliveries,
        "redelivered": stored.deliveries > 0,
        "acked": stored.acked,
        "properties": {"!bytes": message.properties.hex()} if properties is None else properties,
        **({"body_base64": b64encode(message.body).decode()} if text is None else {"body": text}),
    }
    return _encode(content)


@lru_cache(PROPERTIES_CACHED_MAX)
def _properties(raw: bytes) -> dict[str, Json] | None:
    """The properties that are set, headers with their types; None if they cannot be decoded."""
    try:
        properties = decode_properties(raw)
    except SyntaxFault:
        return None
    values = {name: getattr(properties, name) for name in PROPERTY_NAMES}
    if properties.headers is not None:
        values["headers"] = table_to_json(properties.headers)
    return {name: value for name, value in values.items() if value is not None}
