"""Looking into a data directory: counts, messages, and what is wrong with it; nothing of it changes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.storage.data_files import FIRST, SECOND, HandMade, with_queue
from tests.unit.storage.log_files import TIME_MS, LogDirectory, acks, damaged, done, index, offset_of, record
from warren.broker.commands import DeclareQueue, DeleteQueue
from warren.storage.data_files import DataFiles, FileKind, FileProblem, InspectError
from warren.storage.inspect import (
    QueueSummary,
    RecordPlace,
    SegmentSummary,
    read_messages,
    summarize,
)

LATER = (3).to_bytes(4, "little")  # a version that is not known here


@pytest.fixture
def data(tmp_path: Path) -> HandMade:
    return with_queue(tmp_path / "data")[0]


@pytest.fixture
def log(data: HandMade) -> LogDirectory:
    return LogDirectory(data.path / "queues" / "1")


def summary_of(data: HandMade, queue: str = "q", vhost: str = "/") -> QueueSummary:
    return summarize(DataFiles(data.path).queue(vhost, queue))


def fail(problem: FileProblem) -> None:
    raise AssertionError(str(problem))


def positions(data: HandMade, *, first: int = 0, with_acked: bool = False) -> list[int]:
    queue = DataFiles(data.path).queue("/", "q")
    return [m.position for m in read_messages(queue, fail, first=first, with_acked=with_acked)]


# --- counts ---


def test_messages_are_records_less_those_done_with(data: HandMade) -> None:
    summary = summary_of(data)
    assert summary.messages == 4
    assert [(s.base, s.records, s.ready, s.indexed) for s in summary.segments] == [
        (1, 3, 2, True),
        (4, 3, 2, False),
    ]
    assert summary.problems == []


def test_bytes_are_those_of_all_files_of_the_segments(data: HandMade, log: LogDirectory) -> None:
    log.put(4, "torn", b"torn")
    files = [path for path in log.path.iterdir() if path.name != "queue.json"]
    assert summary_of(data).bytes == sum(path.stat().st_size for path in files)


def test_oldest_and_newest_are_of_messages_that_are_ready(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "acks", acks(1, done(1, 2)))
    log.put(4, "acks", acks(4, done(6)))
    summary = summary_of(data)
    assert (summary.oldest, summary.newest) == (RecordPlace(3, TIME_MS + 3), RecordPlace(5, TIME_MS + 5))


def test_queue_of_which_all_is_done_with_has_no_oldest(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "acks", acks(1, done(1, 3)))
    log.put(4, "acks", acks(4, done(4, 3)))
    summary = summary_of(data)
    assert (summary.messages, summary.oldest, summary.newest) == (0, None, None)


def test_index_saves_reading_the_segment(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "seg", damaged(FIRST, offset_of(FIRST, 1, 2) + 40))
    assert summary_of(data).segments[0] == SegmentSummary(1, 3, 2, log_bytes(log, 1), indexed=True)


def log_bytes(log: LogDirectory, base: int) -> int:
    return sum(log.file(base, suffix).stat().st_size for suffix in ("seg", "idx", "acks"))


def test_queue_without_a_directory_has_nothing(data: HandMade) -> None:
    data.definitions.record(DeclareQueue(vhost="/", name="new", durable=True))
    data.write_definitions()
    summary = summary_of(data, "new")
    assert (summary.messages, summary.bytes, summary.segments, summary.problems) == (0, 0, [], [])


@pytest.mark.parametrize(
    ("suffix", "wrong", "ready"),
    [
        ("idx", b"garbage", 2),
        ("idx", index(1, FIRST + record(4, b"more")), 2),
        ("acks", b"garbage" * 10, 3),
        ("seg", FIRST[:8] + LATER + FIRST[12:], 0),
    ],
    ids=["index", "long index", "acks", "unknown version"],
)
def test_damage_is_told_and_the_rest_counted(
    data: HandMade, log: LogDirectory, suffix: str, wrong: bytes, ready: int
) -> None:
    if suffix == "seg":
        log.file(1, "idx").unlink()
    log.put(1, suffix, wrong)
    summary = summary_of(data)
    assert [problem.kind for problem in summary.problems] == [FileKind.DAMAGE]
    assert summary.messages == ready + 2


def test_file_that_cannot_be_read_is_told(data: HandMade, log: LogDirectory) -> None:
    log.file(4, "seg").unlink()
    log.file(4, "seg").mkdir()
    summary = summary_of(data)
    assert [(p.kind, p.file) for p in summary.problems] == [(FileKind.UNREADABLE, str(log.file(4, "seg")))]
    assert summary.messages == 2


# --- which queues there are ---


def test_queues_are_in_order_of_vhost_and_name(data: HandMade) -> None:
    for queue, vhost in (("z", "/"), ("a", "/"), ("b", "another")):
        data.declare(queue, vhost)
    files = DataFiles(data.path)
    names = [(queue.vhost, queue.queue) for queue in files.queues()]
    assert names == [("/", "a"), ("/", "q"), ("/", "z"), ("another", "b")]
    assert [queue.queue for queue in files.queues("another")] == ["b"]


def test_directory_of_a_queue_that_is_not_defined_says_what_it_is(data: HandMade) -> None:
    data.directory(9, DeclareQueue(vhost="v", name="lost"))
    queues = list(DataFiles(data.path).queues())
    assert [(q.vhost, q.queue, q.number, q.defined) for q in queues] == [
        ("/", "q", 1, True),
        ("v", "lost", 9, False),
    ]
    assert DataFiles(data.path).queue("v", "lost").number == 9


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"add_vhost": {"name": "/"}}'])
def test_directory_that_does_not_say_what_it_is_has_no_name(data: HandMade, text: str) -> None:
    log = data.directory(9, DeclareQueue(vhost="v", name="lost"))
    (log.path / "queue.json").write_text(text)
    assert [queue.queue for queue in DataFiles(data.path).queues()] == ["q", None]


def test_directory_of_a_queue_that_was_deleted_is_not_its_successors(data: HandMade) -> None:
    data.definitions.record(DeleteQueue(vhost="/", name="q"))
    data.declare("q")
    assert [(q.number, q.defined) for q in DataFiles(data.path).queues()] == [(2, True), (1, False)]
    assert DataFiles(data.path).queue("/", "q").number == 2


def test_unknown_queue_is_an_error(data: HandMade) -> None:
    with pytest.raises(InspectError, match="no queue 'x' in vhost '/'"):
        DataFiles(data.path).queue("/", "x")


def test_directory_of_another_version_is_an_error(data: HandMade) -> None:
    (data.path / "VERSION").write_text("2\n")
    with pytest.raises(InspectError, match="version '2'"):
        DataFiles(data.path)


@pytest.mark.parametrize(("path", "reason"), [("absent", "no such directory"), (".", "not a data directory")])
def test_what_is_no_data_directory_is_an_error(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(InspectError, match=reason):
        DataFiles(tmp_path / path)


# --- messages ---


def test_messages_come_in_order_and_without_those_done_with(data: HandMade) -> None:
    assert positions(data) == [1, 3, 5, 6]


def test_messages_done_with_come_if_asked_for(data: HandMade) -> None:
    queue = DataFiles(data.path).queue("/", "q")
    found = list(read_messages(queue, fail, with_acked=True))
    assert [(m.position, m.acked, m.deliveries) for m in found] == [
        (1, False, 0),
        (2, True, 0),
        (3, False, 2),
        (4, True, 0),
        (5, False, 0),
        (6, False, 0),
    ]
    assert [m.message.body for m in found] == [b"one", b"two", b"three", b"four", b"five", b"six"]
    assert [m.time_ms - TIME_MS for m in found] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("first", "expected"), [(0, [1, 3, 5, 6]), (2, [3, 5, 6]), (4, [5, 6]), (6, [6]), (7, [])]
)
def test_messages_can_begin_anywhere(data: HandMade, first: int, expected: list[int]) -> None:
    assert positions(data, first=first) == expected


def test_segments_before_the_first_message_asked_for_are_not_read(data: HandMade, log: LogDirectory) -> None:
    for suffix in ("seg", "idx", "acks"):
        log.put(1, suffix, b"not looked at" * 100)
    assert positions(data, first=4) == [5, 6]


def test_bad_record_is_told_and_skipped(data: HandMade, log: LogDirectory) -> None:
    at = offset_of(SECOND, 4, 5)
    log.put(4, "seg", damaged(SECOND, at + 40))
    told: list[FileProblem] = []
    queue = DataFiles(data.path).queue("/", "q")
    assert [m.position for m in read_messages(queue, told.append)] == [1, 3, 6]
    assert [(p.kind, p.file, p.offset) for p in told] == [(FileKind.DAMAGE, str(log.file(4, "seg")), at)]


def test_one_segment_is_read_at_a_time(data: HandMade, log: LogDirectory) -> None:
    messages = read_messages(DataFiles(data.path).queue("/", "q"), fail)
    assert next(messages).position == 1
    log.put(4, "seg", SECOND + record(7, b"seven"))
    assert [message.position for message in messages] == [3, 5, 6, 7]


# --- beside a broker ---


@pytest.fixture
def locked(data: HandMade) -> Iterator[None]:
    """As by a broker; this process has the lock."""
    file = os.open(data.path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, f"{os.getpid():<20}\n".encode())
    yield
    os.close(file)


@pytest.mark.usefixtures("locked")
def test_process_that_has_the_lock_is_named(data: HandMade) -> None:
    assert DataFiles(data.path).holder == os.getpid()


def test_lock_that_nobody_has_names_nobody(data: HandMade) -> None:
    (data.path / "lock").write_text(f"{os.getpid()}\n")
    assert DataFiles(data.path).holder is None


def test_looking_does_not_take_the_lock(data: HandMade) -> None:
    file = os.open(data.path / "lock", os.O_RDWR | os.O_CREAT)
    files = DataFiles(data.path)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if it is taken
    os.close(file)
    assert files.holder is None


@pytest.mark.usefixtures("locked")
def test_file_that_vanishes_under_a_broker_is_no_problem(data: HandMade, log: LogDirectory) -> None:
    messages = read_messages(DataFiles(data.path).queue("/", "q"), fail)
    assert next(messages).position == 1
    for suffix in ("seg", "acks"):
        log.file(4, suffix).unlink()
    assert [message.position for message in messages] == [3]


def test_file_that_vanishes_without_a_broker_is_told(data: HandMade, log: LogDirectory) -> None:
    told: list[FileProblem] = []
    messages = read_messages(DataFiles(data.path).queue("/", "q"), told.append)
    assert next(messages).position == 1
    log.file(4, "seg").unlink()
    assert [message.position for message in messages] == [3]
    assert [(p.kind, p.file) for p in told] == [(FileKind.UNREADABLE, str(log.file(4, "seg")))]


def test_nothing_is_written(data: HandMade, log: LogDirectory) -> None:
    log.put(1, "idx", b"garbage")
    log.put(4, "seg", SECOND + b"torn")
    log.put(4, "acks", b"garbage")
    before = data.state()
    queue = DataFiles(data.path).queue("/", "q")
    told: list[FileProblem] = []
    assert summarize(queue).messages == 5
    assert len(list(read_messages(queue, told.append))) == 5
    assert data.state() == before
