"""The bytes of segments, indexes, due and ack files, and what is made of bytes that are none."""

from __future__ import annotations

import random
import struct

import pytest

from tests.unit.storage.log_files import (
    TIME_MS,
    acks,
    damaged,
    done,
    dues,
    index,
    message,
    offset_of,
    record,
    segment,
    timed_segment,
)
from warren.storage.format import (
    ACKS_MAGIC,
    DUES_MAGIC,
    HEADER_BYTES,
    INDEX_MAGIC,
    SEGMENT_MAGIC,
    UnknownVersion,
    check_header,
    checksum,
    checksum_by_table,
    encode_header,
    encode_record,
    records,
    scan,
)

BASE = 7
BODIES = [b"one", b"two", b"three", b"four"]
SEGMENT = segment(BASE, BODIES)
TIMED = timed_segment(BASE, ["100", None])


def bodies(data: bytes) -> list[bytes]:
    return [found.message.body for found in records(data)]


# --- checksums ---


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # this one and the next three are from RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksum_is_crc_32c(data: bytes, expected: int) -> None:
    assert (checksum(data), checksum_by_table(data)) == (expected, expected)


def test_checksum_by_table_is_the_one_by_instruction() -> None:
    chance = random.Random(1)
    for size in (*range(300), *range(3060, 3090), 6_143, 6_144, 10_000):  # three lanes take 3,072 at once
        data = chance.randbytes(size)
        assert checksum(data) == checksum_by_table(data)


# --- headers ---


def header(magic: bytes) -> bytes:
    return {
        SEGMENT_MAGIC: SEGMENT,
        INDEX_MAGIC: index(BASE, SEGMENT),
        DUES_MAGIC: dues(BASE, TIMED),
        ACKS_MAGIC: acks(BASE, done(BASE)),
    }[magic]


MAGICS = pytest.mark.parametrize("magic", [SEGMENT_MAGIC, INDEX_MAGIC, DUES_MAGIC, ACKS_MAGIC])


@MAGICS
def test_header_that_was_written_is_sound(magic: bytes) -> None:
    check_header(magic, header(magic), BASE)


@MAGICS
@pytest.mark.parametrize("at", [0, 7, 12, 16, 24, 31])
def test_header_with_a_bit_changed_is_not_sound(magic: bytes, at: int) -> None:
    with pytest.raises(ValueError, match=r"checksum|does not begin"):
        check_header(magic, damaged(header(magic), at), BASE)


@MAGICS
def test_header_of_another_version_is_told_apart_from_damage(magic: bytes) -> None:
    later = magic + (3).to_bytes(4, "little") + header(magic)[12:]
    with pytest.raises(UnknownVersion, match="version 3"):
        check_header(magic, later, BASE)


@MAGICS
def test_header_of_another_base_is_not_sound(magic: bytes) -> None:
    with pytest.raises(ValueError, match="base"):
        check_header(magic, header(magic), BASE + 1)


@MAGICS
def test_file_shorter_than_its_header_is_not_sound(magic: bytes) -> None:
    with pytest.raises(ValueError, match="shorter"):
        check_header(magic, header(magic)[: HEADER_BYTES - 1], BASE)


@pytest.mark.parametrize("magic", [INDEX_MAGIC, DUES_MAGIC])
def test_checksum_of_an_index_and_a_due_file_is_over_their_entries_too(magic: bytes) -> None:
    whole = header(magic)
    for data in (damaged(whole, len(whole) - 1), whole[:-8], whole + bytes(8)):
        with pytest.raises(ValueError, match="checksum"):
            check_header(magic, data, BASE)


# --- records ---


def test_record_is_read_as_it_was_written() -> None:
    written = message(b"body", "key", "exchange", message_id="id")
    (found,) = records(encode_header(SEGMENT_MAGIC, 1) + encode_record(5, TIME_MS, written))
    read = found.message
    assert (found.position, found.time_ms, found.offset) == (5, TIME_MS, HEADER_BYTES)
    assert (read.exchange, read.routing_key) == (b"\x08exchange", b"\x03key")
    assert (read.properties, read.body) == (written.properties, b"body")
    assert read.persistent


@pytest.mark.parametrize("size", range(17))
def test_record_is_padded_with_zeros_to_a_multiple_of_8(size: int) -> None:
    data = record(1, b"\xff" * size)
    (length,) = struct.unpack_from("<I", data, 4)
    assert len(data) % 8 == 0
    assert len(data) - length < 8
    assert data[length:] == bytes(len(data) - length)


@pytest.mark.parametrize("names", [("", ""), ("e" * 255, "k" * 255)])
def test_record_takes_names_of_any_length(names: tuple[str, str]) -> None:
    data = encode_header(SEGMENT_MAGIC, 1) + encode_record(1, 0, message(b"", *reversed(names)))
    (found,) = records(data)
    assert (found.message.exchange_name, found.message.key, found.message.body) == (*names, b"")


def test_any_changed_bit_of_a_record_makes_it_bad_and_only_it() -> None:
    at = offset_of(SEGMENT, BASE, BASE + 1)
    (length,) = struct.unpack_from("<I", SEGMENT, at + 4)
    for offset in range(at, at + length):
        assert bodies(damaged(SEGMENT, offset)) == [b"one", b"three", b"four"], f"at {offset}"


# --- scanning ---


def test_scan_of_a_sound_segment_finds_every_record() -> None:
    found = scan(SEGMENT, BASE)
    assert (found.count, found.last, found.end, found.bad) == (4, BASE + 3, len(SEGMENT), [])
    entries = struct.unpack("<12I", found.entries)
    assert entries[::3] == (0, 1, 2, 3)
    assert list(entries[1::3]) == [r.offset for r in records(SEGMENT)]
    assert list(entries[2::3]) == [len(r.message.body) for r in records(SEGMENT)]


def test_scan_of_a_header_alone_finds_nothing() -> None:
    found = scan(encode_header(SEGMENT_MAGIC, BASE), BASE)
    assert (found.count, found.last, found.end, found.bad, found.entries) == (0, None, HEADER_BYTES, [], b"")


def test_scan_notes_gaps_between_positions() -> None:
    data = encode_header(SEGMENT_MAGIC, 10) + record(10, b"a") + record(15, b"b")
    found = scan(data, 10)
    assert (found.count, found.last, struct.unpack("<6I", found.entries)[::3]) == (2, 15, (0, 5))


@pytest.mark.parametrize("bad", [[0], [1], [1, 2], [0, 2], [0, 1, 2]])
def test_scan_tells_where_bad_records_are_and_finds_those_behind(bad: list[int]) -> None:
    data = SEGMENT
    starts = [found.offset for found in records(SEGMENT)]
    for number in bad:
        data = damaged(data, starts[number] + 40)
    found = scan(data, BASE)
    stretches = {at for offset, size in found.bad for at in starts if offset <= at < offset + size}
    assert stretches == {starts[number] for number in bad}
    assert (found.count, found.last, found.end) == (4 - len(bad), BASE + 3, len(data))
    assert bodies(data) == [body for number, body in enumerate(BODIES) if number not in bad]


def test_scan_of_a_segment_cut_anywhere_ends_behind_its_last_whole_record() -> None:
    ends = [HEADER_BYTES, *(found.offset + found.size for found in records(SEGMENT))]
    for size in range(HEADER_BYTES, len(SEGMENT)):
        found = scan(SEGMENT[:size], BASE)
        whole = [end for end in ends if end <= size]
        assert (found.count, found.end, found.bad) == (len(whole) - 1, whole[-1], [])


@pytest.mark.parametrize("zeros", [1, 8, 39, 40, 4096])
def test_scan_ends_before_zeros(zeros: int) -> None:
    found = scan(SEGMENT + bytes(zeros), BASE)
    assert (found.count, found.end, found.bad) == (4, len(SEGMENT), [])


def test_scan_ends_before_garbage_and_finds_records_behind_it() -> None:
    chance = random.Random(2)
    for _ in range(200):
        garbage = chance.randbytes(8 * chance.randrange(1, 60))
        found = scan(SEGMENT + garbage, BASE)
        assert (found.count, found.end, found.bad) == (4, len(SEGMENT), [])
        found = scan(SEGMENT + garbage + record(BASE + 4, b"five"), BASE)
        assert (found.count, found.last, found.bad) == (5, BASE + 4, [(len(SEGMENT), len(garbage))])


def test_scan_of_nothing_but_garbage_finds_nothing() -> None:
    chance = random.Random(3)
    for size in range(200):
        found = scan(chance.randbytes(size), BASE)
        assert (found.count, found.bad) == (0, [])


@pytest.mark.parametrize("position", [BASE - 1, BASE + 3, BASE])
def test_record_whose_position_is_not_above_the_one_before_is_bad(position: int) -> None:
    again = record(position, b"again")
    found = scan(SEGMENT + again + record(BASE + 4, b"five"), BASE)
    assert (found.count, found.bad) == (5, [(len(SEGMENT), len(again))])


def test_record_that_claims_to_be_longer_than_the_file_is_no_record() -> None:
    long = bytearray(record(BASE + 4, b"five"))
    struct.pack_into("<I", long, 4, 0xFFFFFFFF)
    assert scan(SEGMENT + long, BASE).end == len(SEGMENT)
