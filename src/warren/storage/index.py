"""The files beside a closed segment: the index, and the due file, which says what is due when.

See format.pyx for the bytes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

from warren.storage.files import replace_derived, write_file
from warren.storage.format import (
    DUE_ENTRY_BYTES,
    DUES_MAGIC,
    HEADER_BYTES,
    INDEX_ENTRY_BYTES,
    INDEX_ENTRY_FIELDS,
    INDEX_MAGIC,
    INDEX_MORE_BYTES,
    Scan,
    check_header,
    count_and_end,
    encode_header,
    uint32_at,
)


@dataclass(frozen=True)
class Index:
    """What an index says. `dues` is how many entries the due file has. An index of version 1 is
    `without_bodies`: then the size of each body is 0 here.
    """

    count: int
    end: int
    dues: int
    entries: bytes
    without_bodies: bool

    def scan(self, base: int, dues: bytes = b"") -> Scan:
        """The same as a Scan of the whole segment would say."""
        return Scan(self.count, last_of(self.entries, base), self.end, [], self.entries, dues)


def last_of(entries: bytes, base: int) -> int | None:
    """The position of the last record."""
    return base + uint32_at(entries[-INDEX_ENTRY_BYTES:], 0) if entries else None


def decode_index(data: bytes, base: int) -> Index:
    """Raise ValueError or UnknownVersion if it is not sound."""
    version = check_header(INDEX_MAGIC, data, base)
    count, end = count_and_end(data)
    if version == 1:
        return Index(count, end, 0, _widened(data[HEADER_BYTES:]), without_bodies=True)
    entries = data[HEADER_BYTES + INDEX_MORE_BYTES :]
    if len(entries) != count * INDEX_ENTRY_BYTES:
        raise ValueError(f"{len(entries)} bytes are not {count} entries")
    return Index(count, end, uint32_at(data, HEADER_BYTES), entries, without_bodies=False)


def _widened(old: bytes) -> bytes:
    pairs = array("I", old)
    wide = array("I", bytes(len(pairs) // 2 * INDEX_ENTRY_BYTES))
    wide[0::INDEX_ENTRY_FIELDS], wide[1::INDEX_ENTRY_FIELDS] = pairs[0::2], pairs[1::2]
    return wide.tobytes()


def without_bodies(entries: bytes) -> bytes:
    """The entries with 0 for the size of each body, as they are read from an index of version 1."""
    wide = array("I", entries)
    wide[2::INDEX_ENTRY_FIELDS] = array("I", bytes(len(wide) // INDEX_ENTRY_FIELDS * 4))
    return wide.tobytes()


def decode_dues(data: bytes, base: int, index: Index) -> bytes:
    """The entries of a due file; raise ValueError or UnknownVersion if it is none of this index."""
    check_header(DUES_MAGIC, data, base)
    dues, (count, end) = data[HEADER_BYTES:], count_and_end(data)
    if (count, end) != (index.dues, index.end) or len(dues) != count * DUE_ENTRY_BYTES:
        raise ValueError("it is not the one that the index is about")
    return dues


def encode_index(found: Scan, base: int) -> bytes:
    more = (len(found.dues) // DUE_ENTRY_BYTES).to_bytes(4, "little") + bytes(4)
    return encode_header(INDEX_MAGIC, base, found.count, found.end, more + found.entries)


def encode_dues(found: Scan, base: int) -> bytes:
    return encode_header(DUES_MAGIC, base, len(found.dues) // DUE_ENTRY_BYTES, found.end, found.dues)


def write_index(path: str, base: int, found: Scan) -> None:
    """Write both files. The due file is written first, since it does not count without its index."""
    if found.dues:
        write_file(path + ".due", encode_dues(found, base))
    else:
        Path(path + ".due").unlink(missing_ok=True)
    replace_derived(path + ".idx", encode_index(found, base))
