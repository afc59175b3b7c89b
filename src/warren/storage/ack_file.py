"""Reading an ack file: a piece at a time, since there may be far more marks than positions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from warren.storage.fates import Fates
from warren.storage.format import ACKS_MAGIC, HEADER_BYTES, MARK_BYTES, check_header

PIECE_BYTES = 1024 * 1024


def read_fates(path: str | Path, base: int) -> tuple[Fates, int, int]:
    """What the marks of a file come to, how many of them are not sound, and the size of the file without a
    mark that is only partly there. Raise ValueError or UnknownVersion if it is no ack file.
    """
    fates, bad, size = Fates(base), 0, HEADER_BYTES
    with open(path, "rb") as file:  # noqa: PTH123 - paths are text where this is called most
        check_header(ACKS_MAGIC, file.read(HEADER_BYTES), base)
        for piece in pieces(file.fileno(), HEADER_BYTES):
            bad += fates.add(piece)
            size += len(piece)
    return fates, bad, size - (size - HEADER_BYTES) % MARK_BYTES


def pieces(file: int, start: int, end: int | None = None) -> Iterator[bytes]:
    """The marks in an open file from one offset on, to another or to its end. All but the last are whole."""
    at = start
    while end is None or at < end:
        wanted = PIECE_BYTES if end is None else min(PIECE_BYTES, end - at)
        piece = _read(file, wanted, at)
        if not piece:
            return
        yield piece
        at += len(piece)


def _read(file: int, size: int, at: int) -> bytes:
    """Read so many bytes, or fewer if the file ends before."""
    data = os.pread(file, size, at)
    while 0 < len(data) < size:
        more = os.pread(file, size - len(data), at + len(data))
        if not more:
            break
        data += more
    return data
