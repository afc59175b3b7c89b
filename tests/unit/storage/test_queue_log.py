"""What leaves a log out of order, what browsing sees, and what is counted meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_machine import LogMachine, browse, message, read_on
from tests.unit.storage.log_files import damaged
from warren.broker.message import Message
from warren.broker.store import NOTHING_TO_READ
from warren.storage.queue_log import QueueLog


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LogMachine]:
    """A segment has room for four messages as `append` makes them."""
    machine = LogMachine(tmp_path, segment_bytes=320)
    yield machine
    machine.close()


@pytest.fixture
def log(machine: LogMachine) -> QueueLog:
    return machine.open()


def body(position: int) -> bytes:
    return b"%030d" % position


def append(log: QueueLog, *positions: int, taken: bool = False) -> dict[int, int]:
    """Where each lies."""
    return {position: log.append(message(body(position)), position, taken) for position in positions}


def bodies(found: list[tuple[int, Message]]) -> list[bytes]:
    return [read.body for _, read in found]


def counts(log: QueueLog) -> tuple[int, int, list[tuple[int, int]]]:
    return log.unread, log.unread_bytes, [(segment.alive, segment.unread) for segment in log.segments]


def take_out(log: QueueLog, places: dict[int, int], *positions: int) -> list[bytes | None]:
    found = [log.take_out(position, places[position]) for position in positions]
    return [None if taken is None else taken.body for taken in found]


# --- taken out ---


@pytest.mark.parametrize("written", [False, True])
def test_what_is_taken_out_is_alive_and_not_unread(machine: LogMachine, log: QueueLog, written: bool) -> None:
    places = append(log, *range(1, 7))
    if written:
        machine.run()
    assert take_out(log, places, 5, 2) == [body(5), body(2)]
    assert counts(log) == (4, 120, [(4, 3), (2, 1)])
    assert bodies(read_on(log)) == [body(position) for position in (1, 3, 4, 6)]
    assert counts(log) == (0, 0, [(4, 0), (2, 0)])


def test_what_is_in_flight_and_what_gathers_can_be_taken_out(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, 1, 2)
    machine.world.run()
    places |= append(log, 3)
    assert machine.disk.is_busy
    assert take_out(log, places, 3, 2) == [body(3), body(2)]


def test_message_that_the_cursor_was_asked_for_can_be_taken_out(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, 1, 2, 3)
    machine.run()
    assert log.peek() == 1
    assert take_out(log, places, 1) == [body(1)]
    assert log.peek() == 2


def test_what_is_not_unread_any_more_is_not_taken_out(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 12))
    read_on(log, 2)
    take_out(log, places, 4)
    for position in (1, 2, 4):
        log.acked(position)
    machine.run()
    before = counts(log)
    assert take_out(log, places | {99: 32}, 1, 2, 4, 99) == [None] * 4
    assert counts(log) == before
    for _ in log.purge():
        pass
    assert take_out(log, places, *range(1, 12)) == [None] * 11


def test_segment_goes_when_all_of_it_was_taken_out_and_acked(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 10))
    for position in (7, 5, 8, 6):
        take_out(log, places, position)
        log.acked(position)
    machine.run()
    assert sorted(path.name.lstrip("0") for path in machine.directory.glob("*.seg")) == ["1.seg", "9.seg"]
    assert bodies(read_on(log)) == [body(position) for position in (1, 2, 3, 4, 9)]


def test_what_was_taken_out_is_unread_again_after_a_restart(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 6))
    take_out(log, places, 2, 4)
    log.delivered(2, 1)
    log.acked(4)
    machine.restart()
    log = machine.open()
    assert bodies(browse(log)) == [body(position) for position in (1, 2, 3, 5)]
    assert [log.deliveries_of(position) for position in (1, 2)] == [0, 1]
    assert take_out(log, places, 4) == [None]


def test_what_was_taken_out_survives_a_purge(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 10))
    take_out(log, places, 3, 6)
    for _ in log.purge():
        pass
    assert log.unread == log.unread_bytes == 0
    machine.restart()
    assert bodies(browse(machine.open())) == [body(3), body(6)]


def test_message_that_arrives_taken_overtakes_those_that_wait(machine: LogMachine, log: QueueLog) -> None:
    append(log, 1)
    append(log, 2, 3, taken=True)
    append(log, 4)
    assert (log.unread, bodies(browse(log))) == (2, [body(1), body(4)])
    assert bodies(read_on(log)) == [body(1), body(4)]
    append(log, 5)
    assert bodies(read_on(log)) == [body(5)]


def test_nothing_comes_twice_when_the_tail_was_emptied_from_the_middle(log: QueueLog) -> None:
    places = append(log, 1, 2)
    assert take_out(log, places, 2, 1) == [body(2), body(1)]
    append(log, 3)
    assert bodies(read_on(log)) == [body(3)]


def test_message_of_an_overflow_is_gone_when_it_is_taken_out(machine: LogMachine) -> None:
    log = machine.open_overflow()
    places = append(log, *range(1, 6))
    machine.run()
    assert take_out(log, places, 2, 1, 4, 3) == [body(2), body(1), body(4), body(3)]
    assert counts(log) == (1, 30, [(1, 1)])
    machine.run()
    assert [path.name.lstrip("0") for path in Path(log.chain.directory.path).glob("*.seg")] == ["5.seg"]


def test_large_messages_are_taken_out_whole(machine: LogMachine, log: QueueLog) -> None:
    large = {position: bytes((position,)) * 100_000 for position in (1, 2)}
    places = {position: log.append(message(data), position, False) for position, data in large.items()}
    machine.run()
    assert take_out(log, places, 2, 1) == [large[2], large[1]]


def spoil(machine: LogMachine, at: int) -> None:
    file = machine.directory / f"{1:020}.seg"
    file.write_bytes(damaged(file.read_bytes(), at))


def test_bad_record_is_told_and_counts_as_lost(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 6))
    machine.run()
    spoil(machine, places[2] + 40)
    assert take_out(log, places, 2, 3) == [None, body(3)]
    assert (machine.told, log.unread, log.segments[0].alive) == (["bad record"], 3, 3)
    assert (machine.directory / f"{1:020}.torn").stat().st_size == places[3] - places[2]
    assert bodies(read_on(log)) == [body(1), body(4), body(5)]
    assert (machine.told, log.unread, log.unread_bytes) == (["bad record"], 0, 0)


def test_bad_record_that_the_cursor_has_passed_is_lost_once(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 6))
    machine.run()
    spoil(machine, places[2] + 40)
    assert bodies(read_on(log, 2)) == [body(1), body(3)]
    assert take_out(log, places, 2) == [None]
    assert bodies(read_on(log)) == [body(4), body(5)]
    assert (log.unread, log.unread_bytes, [segment.alive for segment in log.segments]) == (0, 0, [3, 1])


def test_file_that_cannot_be_read_is_told_and_never_deleted(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 6))
    machine.run()
    file = machine.directory / f"{1:020}.seg"
    machine.files.close(str(file))
    file.rename(file.with_suffix(".away"))
    assert take_out(log, places, 2) == [None]
    assert "cannot read segment" in machine.told
    assert log.segments[0].damaged


# --- browsing ---


def test_browsing_takes_nothing(machine: LogMachine, log: QueueLog) -> None:
    append(log, *range(1, 8))
    machine.run()
    before = counts(log)
    for _ in range(2):
        assert bodies(browse(log)) == [body(position) for position in range(1, 8)]
    assert counts(log) == before
    assert bodies(read_on(log)) == [body(position) for position in range(1, 8)]


def test_location_that_browsing_gives_is_that_of_the_message(log: QueueLog) -> None:
    places = append(log, *range(1, 8))
    browser, position = log.browse(), 0
    while (position := browser.next_position(position)) != NOTHING_TO_READ:
        assert browser.location == places[position]
        assert browser.read().body == browser.read().body == body(position)


def test_browsing_skips_what_others_take_meanwhile(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 16))
    machine.run()
    browser = log.browse()
    assert browser.next_position(0) == 1
    take_out(log, places, 2)
    assert browser.next_position(1) == 3
    read_on(log, 7)  # the cursor passes it, and goes on to the next segment
    assert browser.next_position(3) == 9
    for position in range(1, 9):
        log.acked(position)
    machine.run()  # where it was is deleted
    assert (browser.next_position(3), browser.read().body) == (9, body(9))
    for _ in log.purge():
        pass
    assert browser.next_position(0) == NOTHING_TO_READ


def test_browsing_goes_on_when_more_comes(machine: LogMachine, log: QueueLog) -> None:
    append(log, 1, 2)
    browser = log.browse()
    assert browser.next_position(2) == NOTHING_TO_READ
    append(log, 3, 4)
    assert (browser.next_position(2), browser.read().body) == (3, body(3))
    machine.run()
    append(log, 5, 6)  # in a segment of their own
    assert len(log.segments) == 2
    assert (browser.read().body, browser.next_position(4), browser.read().body) == (body(3), 5, body(5))


def test_browsing_can_go_back_and_ahead(machine: LogMachine, log: QueueLog) -> None:
    append(log, *range(1, 30, 2))
    machine.run()
    browser = log.browse()
    for above in (20, 3, 4, 28, 29, 0, 13):
        expected = next((position for position in range(1, 30, 2) if position > above), NOTHING_TO_READ)
        assert browser.next_position(above) == expected


def test_bad_record_is_told_once_by_browsing(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, *range(1, 6))
    machine.run()
    spoil(machine, places[3] + 40)
    for _ in range(2):
        assert bodies(browse(log)) == [body(position) for position in (1, 2, 4, 5)]
    assert machine.told == ["bad record"]


def test_deleted_log_has_nothing_to_browse_or_take_out(machine: LogMachine, log: QueueLog) -> None:
    places = append(log, 1, 2)
    browser = log.browse()
    browser.next_position(0)
    log.delete()
    assert (browser.next_position(0), take_out(log, places, 1)) == (NOTHING_TO_READ, [None])


# --- bytes ---


@pytest.mark.parametrize("how", ["read on", "taken out", "lost"])
def test_unread_bytes_are_those_of_bodies(machine: LogMachine, log: QueueLog, how: str) -> None:
    sizes = {1: 0, 2: 7, 3: 1_000, 4: 8}
    places = {p: log.append(message(bytes(size)), p, False) for p, size in sizes.items()}
    assert log.unread_bytes == 1_015
    machine.restart()
    log = machine.open()
    assert log.unread_bytes == 1_015
    if how == "read on":
        read_on(log, 2)
        assert log.unread_bytes == 1_008
    elif how == "taken out":
        take_out(log, places, 3)
        assert log.unread_bytes == 15
    else:
        spoil(machine, places[2] + 36)
        read_on(log)
    read_on(log)
    assert (log.unread, log.unread_bytes) == (0, 0)


def test_unread_bytes_after_a_restart_are_without_those_of_acked_messages(
    machine: LogMachine, log: QueueLog
) -> None:
    append(log, *range(1, 10))
    read_on(log, 3)
    log.acked(2)
    machine.restart()
    assert machine.open().unread_bytes == 8 * 30
