r"""Lines of JSON that carry their checksum, so that damage is noticed and stays within its line.

    line      crc " " object "\n"
    crc       8 hex digits: zlib.crc32 of the object's text
    object    one JSON object in ASCII, without line breaks

    bbb8b0f0 {"add_vhost": {"name": "/"}}

A damaged line break runs two lines together; both are told apart again. What is not intact at the very end
is the *torn tail* of a write that did not finish, and so is a last line without its line break, even if it
checks: nobody was told that it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from zlib import crc32

from warren.broker.parameters import Json
from warren.storage.table_text import expect

CRC_DIGITS = 8
OBJECT_START = CRC_DIGITS + 1
_encode = json.JSONEncoder(check_circular=False, allow_nan=False).encode  # made once: faster than json.dumps
_DECODER = json.JSONDecoder()
_scan_once = _DECODER.scan_once  # type: ignore[attr-defined]  # typeshed lacks it; faster than json.loads


class Line:
    """`raw` is all of it, without its line break. Lines are counted from 1."""

    def __init__(self, number: int, offset: int, raw: bytes, *, intact: bool) -> None:
        self.number = number
        self.offset = offset
        self.raw = raw
        self.intact = intact


def checked_line(content: Mapping[str, Json]) -> bytes:
    text = _encode(content).encode("ascii")
    return b"%08x %s\n" % (crc32(text), text)


def line_content(line: bytes) -> dict[str, Json]:
    """ValueError if it is not an object."""
    text = line[OBJECT_START:].decode("ascii")
    try:
        content, end = _scan_once(text, 0)
    except StopIteration:
        raise ValueError("no object") from None
    if end != len(text) and text[end:].strip():
        raise ValueError("more than one object")
    fields: dict[str, Json] = expect(dict, content)
    return fields


def scan_lines(data: bytes) -> Iterator[Line]:
    start, number = 0, 1
    while start < len(data):
        end = data.find(b"\n", start)
        if end < 0:
            yield Line(number, start, data[start:], intact=False)
            return
        raw = data[start:end]
        if _is_intact(raw):
            yield Line(number, start, raw, intact=True)
        else:
            yield from _damaged(number, start, raw)
        start, number = end + 1, number + 1


def _is_intact(raw: bytes) -> bool:
    return raw[:OBJECT_START] == b"%08x " % crc32(raw[OBJECT_START:])


def _damaged(number: int, offset: int, raw: bytes) -> Iterator[Line]:
    end = _end_of_object(raw)
    first, second = raw[:end], raw[end + 1 :]
    if _is_intact(first) and _is_intact(second):
        yield Line(number, offset, first, intact=True)
        yield Line(number, offset + end + 1, second, intact=True)
    else:
        yield Line(number, offset, raw, intact=False)


def _end_of_object(raw: bytes) -> int:
    """Where the first object in it ends; at the end if there is none."""
    text = raw[OBJECT_START:].decode("ascii", "replace")  # a character for every byte
    try:
        return OBJECT_START + _DECODER.raw_decode(text)[1]
    except (ValueError, RecursionError):
        return len(raw)
