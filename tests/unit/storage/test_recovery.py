"""What recovery makes of a damaged log: each damage is told, and costs no more than it must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.storage.log_files import (
    LogDirectory,
    acks,
    damaged,
    done,
    index,
    offset_of,
    record,
    segment,
)
from warren.storage.files import names_in
from warren.storage.format import (
    ACKED,
    ACKS_MAGIC,
    HEADER_BYTES,
    INDEX_MAGIC,
    MARK_BYTES,
    RELATIVE_MAX,
    SEGMENT_MAGIC,
    check_header,
    encode_header,
    scan,
)
from warren.storage.problems import Problems
from warren.storage.recovery import RecoveredLog, recover
from warren.storage.segment_life import Life

FIRST = segment(1, [b"one", b"two", b"three"])
SECOND = segment(4, [b"four", b"five", b"six"])
LATER = (3).to_bytes(4, "little")  # a version that is not known here


class Recovery:
    """A log's directory, and what is told when it is read back."""

    def __init__(self, path: Path) -> None:
        self.log = LogDirectory(path)
        self.told: list[str] = []

    def warn(self, event: str, **fields: Any) -> None:
        assert Path(fields["file"]).parent == self.log.path
        self.told.append(event)

    def run(self, *, marks_may_be_lost: bool = False) -> RecoveredLog:
        self.told.clear()
        path = str(self.log.path)
        return recover(path, Problems(self.warn), names_in(path), marks_may_be_lost=marks_may_be_lost)

    def torn(self, base: int = 1, suffix: str = "torn") -> bytes:
        return self.log.file(base, suffix).read_bytes()


@pytest.fixture
def recovery(tmp_path: Path) -> Recovery:
    """A log of two segments, of which the first is closed."""
    recovery = Recovery(tmp_path / "1")
    recovery.log.put(1, "seg", FIRST)
    recovery.log.put(1, "idx", index(1, FIRST))
    recovery.log.put(4, "seg", SECOND)
    return recovery


def ready(found: RecoveredLog) -> list[int]:
    """The positions that are not done with, in the order in which they will be delivered."""
    positions = []
    for part in found.segments:
        data = Path(part.path + ".seg").read_bytes()
        entries = memoryview(scan(data, part.base).entries).cast("I")
        alive = [part.base + n for n in entries[::3] if part.fate_of(part.base + n) != ACKED]
        assert (part.alive, part.unread) == (len(alive), len(alive))
        positions += alive
    return positions


# --- what is sound ---


def test_sound_log_is_recovered_without_a_word(recovery: Recovery) -> None:
    recovery.log.put(1, "acks", acks(1, done(2), (3, 1, 2)))
    found = recovery.run()
    assert (ready(found), found.position, recovery.told) == ([1, 3, 4, 5, 6], 6, [])
    assert [found.segments[0].fate_of(position) for position in (1, 2, 3)] == [0, ACKED, 2]
    assert [part.life for part in found.segments] == [Life.COMPLETE, Life.OPEN]


def test_empty_directory_has_no_messages(tmp_path: Path) -> None:
    recovery = Recovery(tmp_path / "1")
    found = recovery.run()
    assert (found.segments, found.position, recovery.told) == ([], 0, [])


def test_segment_of_which_all_is_done_with_is_deleted(recovery: Recovery) -> None:
    recovery.log.put(1, "acks", acks(1, done(1, 3)))
    assert ready(recovery.run()) == [4, 5, 6]
    assert recovery.log.names() == ["4.seg"]


def test_highest_number_of_deliveries_holds_and_done_with_is_final(recovery: Recovery) -> None:
    recovery.log.put(4, "acks", acks(4, (4, 2, 3), (4, 1, 1), done(5), (5, 1, 9), (6, 1, 70_000)))
    part = recovery.run().segments[1]
    assert [part.fate_of(position) for position in (4, 5, 6)] == [3, ACKED, 70_000]


def test_all_count_as_delivered_once_if_marks_may_be_lost(recovery: Recovery) -> None:
    recovery.log.put(4, "acks", acks(4, done(4), (6, 1, 5)))
    first, second = recovery.run(marks_may_be_lost=True).segments
    assert [first.fate_of(1), *(second.fate_of(position) for position in (4, 5, 6))] == [1, ACKED, 1, 5]


# --- records ---


@pytest.mark.parametrize("cut", [1, 8, 30])
def test_torn_tail_is_cut_and_set_aside(recovery: Recovery, cut: int) -> None:
    torn = record(7, b"seven")[:-cut]
    recovery.log.put(4, "seg", SECOND + torn)
    found = recovery.run()
    assert (ready(found), found.position, recovery.told) == ([1, 2, 3, 4, 5, 6], 6, ["torn tail"])
    assert (recovery.log.file(4, "seg").read_bytes(), recovery.torn(4)) == (SECOND, torn)
    assert found.segments[1].end == found.segments[1].written == len(SECOND)


def test_zeros_behind_the_last_record_are_cut_and_not_kept(recovery: Recovery) -> None:
    recovery.log.put(4, "seg", SECOND + bytes(5000))
    assert ready(recovery.run()) == [1, 2, 3, 4, 5, 6]
    assert recovery.told == ["torn tail"]
    assert recovery.log.file(4, "seg").read_bytes() == SECOND
    assert not recovery.log.file(4, "torn").exists()


def test_bad_record_in_the_middle_costs_that_record_only(recovery: Recovery) -> None:
    at = offset_of(SECOND, 4, 5)
    data = damaged(SECOND, at + 40)
    recovery.log.put(4, "seg", data)
    assert ready(recovery.run()) == [1, 2, 3, 4, 6]
    assert recovery.told == ["bad record"]
    assert recovery.log.file(4, "seg").read_bytes() == data
    assert recovery.torn(4) == data[at : offset_of(SECOND, 4, 6)]


def test_what_was_set_aside_is_not_added_again_at_the_next_start(recovery: Recovery) -> None:
    recovery.log.put(4, "seg", damaged(SECOND, offset_of(SECOND, 4, 5) + 40))
    recovery.run()
    once = recovery.torn(4)
    recovery.run()
    assert (recovery.told, recovery.torn(4)) == (["bad record"], once)


def test_bytes_torn_later_are_added_to_what_was_set_aside(recovery: Recovery) -> None:
    for torn in (b"first tear", b"second tear"):
        recovery.log.put(4, "seg", SECOND + torn)
        recovery.run()
    assert recovery.torn(4) == b"first tearsecond tear"


def test_bad_record_of_a_segment_without_index_is_left_out_of_the_new_index(recovery: Recovery) -> None:
    data = damaged(FIRST, offset_of(FIRST, 1, 2) + 40)
    recovery.log.put(1, "seg", data)
    recovery.log.file(1, "idx").unlink()
    assert ready(recovery.run()) == [1, 3, 4, 5, 6]
    assert recovery.told == ["bad record"]
    assert recovery.log.file(1, "idx").read_bytes() == index(1, data)


def test_header_that_is_not_sound_costs_no_record(recovery: Recovery) -> None:
    recovery.log.put(4, "seg", damaged(SECOND, 20))
    assert ready(recovery.run()) == [1, 2, 3, 4, 5, 6]
    assert recovery.told == ["segment's header is not sound"]


@pytest.mark.parametrize(
    "data", [b"x", b"garbage" * 3, b"garbage" * 1000, SECOND[:HEADER_BYTES], SECOND[: HEADER_BYTES + 20]]
)
def test_file_without_a_record_is_set_aside_whole(recovery: Recovery, data: bytes) -> None:
    recovery.log.put(4, "seg", data)
    found = recovery.run()
    assert (ready(found), found.position) == ([1, 2, 3], 3)
    assert recovery.told[-1] == "no record in segment"
    assert recovery.torn(4) == data
    assert not recovery.log.file(4, "seg").exists()


def test_file_without_a_record_before_others_is_told_once(recovery: Recovery) -> None:
    recovery.log.file(1, "idx").unlink()
    recovery.log.put(1, "seg", FIRST[:HEADER_BYTES] + b"garbage")
    assert ready(recovery.run()) == [4, 5, 6]
    assert recovery.told == ["no record in segment"]


def test_file_of_zeros_is_told_and_deleted(recovery: Recovery) -> None:
    recovery.log.put(4, "seg", bytes(4096))
    assert ready(recovery.run()) == [1, 2, 3]
    assert recovery.told == ["segment's header is not sound", "no record in segment"]
    assert "4.seg" not in recovery.log.names()


# --- segments that cannot be read, and may be another time: their positions are not used again ---


def unknown_version(log: LogDirectory) -> None:
    log.put(4, "seg", SECOND[:8] + LATER + SECOND[12:])


def missing_but_indexed(log: LogDirectory) -> None:
    log.file(4, "seg").unlink()
    log.put(4, "idx", index(4, SECOND))
    log.put(4, "acks", acks(4, done(4, 2)))


def empty_but_indexed(log: LogDirectory) -> None:
    log.put(4, "seg", b"")
    log.put(4, "idx", index(4, SECOND))


def not_a_file(log: LogDirectory) -> None:
    log.file(4, "seg").unlink()
    log.file(4, "seg").mkdir()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (unknown_version, "segment is of an unknown version"),
        (missing_but_indexed, "segment is missing"),
        (empty_but_indexed, "segment is empty"),
        (not_a_file, "cannot read segment"),
    ],
)
def test_segment_that_cannot_be_read_is_told_and_left_alone(
    recovery: Recovery, spoil: Callable[[LogDirectory], None], told: str
) -> None:
    spoil(recovery.log)
    before = recovery.log.names()
    found = recovery.run()
    assert (ready(found), recovery.told) == ([1, 2, 3], [told])
    assert recovery.log.names() == before
    assert found.position == 4 + RELATIVE_MAX


def test_segment_that_was_never_written_is_told_and_removed(recovery: Recovery) -> None:
    recovery.log.put(4, "seg", b"")
    assert ready(recovery.run()) == [1, 2, 3]
    assert recovery.told == ["segment is empty"]
    assert recovery.log.names() == ["1.idx", "1.seg"]


def test_acks_that_outlived_their_segment_are_removed(recovery: Recovery) -> None:
    """As when the broker is killed while it deletes a segment."""
    recovery.log.file(4, "seg").unlink()
    recovery.log.put(4, "acks", acks(4, (4, 1, 1), done(4), done(5)))
    found = recovery.run()
    assert (ready(found), found.position, recovery.told) == ([1, 2, 3], 5, [])
    assert recovery.log.names() == ["1.idx", "1.seg"]


@pytest.mark.parametrize("created", [False, True])
def test_marks_of_records_that_were_never_written_are_told_and_removed(
    recovery: Recovery, created: bool
) -> None:
    """As when the broker is killed before the round that would have written them; nobody was told it had."""
    recovery.log.put(7, "acks", acks(7, (7, 3, 1), done(7)))
    if created:
        recovery.log.put(7, "seg", b"")
    found = recovery.run()
    assert (ready(found), found.position) == ([1, 2, 3, 4, 5, 6], 9)
    told = ["segment is empty"] if created else []
    assert recovery.told == [*told, "marks of records that were never written"]
    assert recovery.log.names() == ["1.idx", "1.seg", "4.seg"]


def test_files_set_aside_of_a_segment_that_is_gone_are_no_missing_segment(recovery: Recovery) -> None:
    recovery.log.put(7, "torn", b"torn")
    found = recovery.run()
    assert (ready(found), found.position, recovery.told) == ([1, 2, 3, 4, 5, 6], 7, [])


def test_segment_of_an_unknown_version_is_not_changed(recovery: Recovery) -> None:
    unknown_version(recovery.log)
    data = recovery.log.file(4, "seg").read_bytes()
    recovery.run()
    assert recovery.log.file(4, "seg").read_bytes() == data


def test_positions_go_on_behind_a_segment_in_the_middle_that_cannot_be_read(recovery: Recovery) -> None:
    recovery.log.file(1, "idx").unlink()
    recovery.log.put(1, "seg", FIRST[:8] + LATER + FIRST[12:])
    found = recovery.run()
    assert (ready(found), found.position) == ([4, 5, 6], 1 + RELATIVE_MAX)


# --- indexes ---


def test_missing_index_is_written_again(recovery: Recovery) -> None:
    recovery.log.file(1, "idx").unlink()
    assert ready(recovery.run()) == [1, 2, 3, 4, 5, 6]
    assert recovery.told == []
    assert recovery.log.file(1, "idx").read_bytes() == index(1, FIRST)


WHOLE_INDEX = index(1, FIRST)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        WHOLE_INDEX[:-1],
        damaged(WHOLE_INDEX, 40),
        WHOLE_INDEX[:8] + LATER + WHOLE_INDEX[12:],
        index(4, SECOND),
        b"garbage" * 20,
    ],
    ids=["empty", "cut", "damaged", "of an unknown version", "of another segment", "garbage"],
)
def test_index_that_is_not_sound_is_told_and_written_again(recovery: Recovery, wrong: bytes) -> None:
    recovery.log.put(1, "idx", wrong)
    assert ready(recovery.run()) == [1, 2, 3, 4, 5, 6]
    assert recovery.told == ["index is not sound"]
    assert recovery.log.file(1, "idx").read_bytes() == WHOLE_INDEX


def test_index_longer_than_its_segment_is_told_and_written_again(recovery: Recovery) -> None:
    short = segment(1, [b"one", b"two"])
    recovery.log.put(1, "seg", short)
    assert ready(recovery.run()) == [1, 2, 4, 5, 6]
    assert recovery.told == ["segment is shorter than its index says"]
    assert recovery.log.file(1, "idx").read_bytes() == index(1, short)


def test_nothing_is_appended_to_the_last_segment_if_its_index_was_wrong(recovery: Recovery) -> None:
    """Else the old index would be right again once the segment is as long, and hide what was appended."""
    longer = segment(4, [b"four", b"five", b"six", b"seven"])
    recovery.log.put(4, "idx", index(4, longer))
    found = recovery.run()
    assert (ready(found), recovery.told) == ([1, 2, 3, 4, 5, 6], ["segment is shorter than its index says"])
    assert found.segments[1].life is Life.COMPLETE
    assert recovery.log.file(4, "idx").read_bytes() == index(4, SECOND)


def test_index_that_was_not_finished_does_no_harm(recovery: Recovery) -> None:
    recovery.log.put(1, "idx.new", WHOLE_INDEX[:20])
    recovery.log.file(1, "idx").unlink()
    assert ready(recovery.run()) == [1, 2, 3, 4, 5, 6]
    assert recovery.told == []
    assert recovery.log.names() == ["1.idx", "1.seg", "4.seg"]


# --- ack files ---


@pytest.mark.parametrize("size", [1, 15])
def test_torn_mark_is_told_and_overwritten_by_the_next(recovery: Recovery, size: int) -> None:
    recovery.log.put(4, "acks", acks(4, done(4)) + acks(4, done(5))[HEADER_BYTES:][:size])
    found = recovery.run()
    assert (ready(found), recovery.told) == ([1, 2, 3, 5, 6], ["bad marks in ack file"])
    assert found.segments[1].marks_written == HEADER_BYTES + MARK_BYTES


def test_zeros_in_an_ack_file_never_ack_anything(recovery: Recovery) -> None:
    recovery.log.put(4, "acks", acks(4, done(4)) + bytes(10 * MARK_BYTES) + acks(4, done(6))[HEADER_BYTES:])
    assert ready(recovery.run()) == [1, 2, 3, 5]
    assert recovery.told == ["bad marks in ack file"]


def test_bad_mark_in_the_middle_costs_that_mark_only(recovery: Recovery) -> None:
    recovery.log.put(4, "acks", damaged(acks(4, done(4), done(5), done(6)), HEADER_BYTES + 20))
    assert ready(recovery.run()) == [1, 2, 3, 5]
    assert recovery.told == ["bad marks in ack file"]


WHOLE_ACKS = acks(4, done(4))


@pytest.mark.parametrize(
    "wrong",
    [
        b"x",
        WHOLE_ACKS[:20],
        bytes(200),
        damaged(WHOLE_ACKS, 20),
        WHOLE_ACKS[:8] + LATER + WHOLE_ACKS[12:],
        acks(1, done(1)),
    ],
    ids=["short", "cut", "zeros", "damaged", "of an unknown version", "of another segment"],
)
def test_ack_file_that_is_not_sound_is_told_and_set_aside(recovery: Recovery, wrong: bytes) -> None:
    recovery.log.put(4, "acks", wrong)
    found = recovery.run()
    assert (ready(found), recovery.told) == ([1, 2, 3, 4, 5, 6], ["ack file is not sound"])
    assert found.segments[1].marks_written == 0
    assert not recovery.log.file(4, "acks").exists()
    if any(wrong):
        assert recovery.torn(4, "acks.torn") == wrong


def test_second_ack_file_that_is_not_sound_is_set_aside_too(recovery: Recovery) -> None:
    for wrong in (b"wrong once", b"wrong again"):
        recovery.log.put(4, "acks", wrong)
        recovery.run()
    assert recovery.torn(4, "acks.torn") == b"wrong oncewrong again"


def test_acks_beyond_the_data_are_told_and_their_positions_not_used_again(recovery: Recovery) -> None:
    recovery.log.put(4, "acks", acks(4, done(5, 10)))
    found = recovery.run()
    assert (ready(found), found.position, recovery.told) == ([1, 2, 3, 4], 14, ["acks beyond the data"])


def test_acks_of_positions_that_never_were_do_no_harm(recovery: Recovery) -> None:
    gap = encode_header(SEGMENT_MAGIC, 7) + record(7, b"seven") + record(10, b"ten")
    recovery.log.put(7, "seg", gap)
    recovery.log.put(7, "acks", acks(7, done(8, 2)))
    assert ready(recovery.run()) == [1, 2, 3, 4, 5, 6, 7, 10]
    assert recovery.told == []


# --- what is not ours ---


@pytest.mark.parametrize(
    "name", ["notes.txt", "5.seg", "00000000000000000005.old", "0000000000000000000x.seg", ".hidden"]
)
def test_foreign_file_is_told_and_left_alone(recovery: Recovery, name: str) -> None:
    (recovery.log.path / name).write_bytes(b"mine")
    found = recovery.run()
    assert (ready(found), found.position, recovery.told) == ([1, 2, 3, 4, 5, 6], 6, ["foreign file"])
    assert (recovery.log.path / name).read_bytes() == b"mine"


def test_files_set_aside_before_are_ours(recovery: Recovery) -> None:
    for suffix in ("torn", "acks.torn"):
        recovery.log.put(4, suffix, b"garbage")
    assert ready(recovery.run()) == [1, 2, 3, 4, 5, 6]
    assert recovery.told == []


def test_all_damages_at_once_leave_the_rest(recovery: Recovery) -> None:
    recovery.log.put(1, "idx", b"garbage")
    recovery.log.put(1, "acks", b"garbage")
    recovery.log.put(4, "seg", damaged(SECOND, offset_of(SECOND, 4, 5) + 40) + b"torn")
    recovery.log.put(4, "acks", acks(4, done(4)) + b"torn")
    (recovery.log.path / "foreign").touch()
    assert ready(recovery.run()) == [1, 2, 3, 6]
    assert recovery.told == [
        "foreign file",
        "index is not sound",
        "ack file is not sound",
        "bad record",
        "torn tail",
        "bad marks in ack file",
    ]


def test_what_recovery_leaves_is_sound(recovery: Recovery) -> None:
    test_all_damages_at_once_leave_the_rest(recovery)
    (recovery.log.path / "foreign").unlink()
    assert ready(recovery.run()) == [1, 2, 3, 6]
    assert recovery.told == ["bad record", "bad marks in ack file"]
    for magic, base, suffix in ((INDEX_MAGIC, 1, "idx"), (SEGMENT_MAGIC, 4, "seg"), (ACKS_MAGIC, 4, "acks")):
        check_header(magic, recovery.log.file(base, suffix).read_bytes(), base)
