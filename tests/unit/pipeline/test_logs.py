"""Reading logs, by path and by HTTP: the same rules for both."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.segment_api import SegmentApi
from tests.support.segments import START_MS, DataDirectory, message, write_segment_index
from tests.unit.pipeline.reading import numbered, read, whole
from warren.pipeline.segments.errors import (
    BadOption,
    DataLoss,
    Refused,
    UnknownQueue,
    Unreachable,
    Unreadable,
)
from warren.pipeline.segments.files import FileLog, _segment_sizes
from warren.pipeline.segments.http import HttpLog
from warren.pipeline.segments.log import QueueRef, SegmentLog, Slice
from warren.pipeline.segments.offsets import offset_at
from warren.pipeline.segments.plan import Partition, Portion


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path / "data")


@pytest.fixture
def api(data: DataDirectory) -> Iterator[SegmentApi]:
    with SegmentApi(str(data.path)) as running:
        yield running


@pytest.fixture(params=["files", "http"])
def log(request: pytest.FixtureRequest, data: DataDirectory, api: SegmentApi) -> Iterator[SegmentLog]:
    made: SegmentLog = (
        FileLog(str(data.path)) if request.param == "files" else HttpLog(api.url, "guest", "guest")
    )
    with closing(made):
        yield made


# --- what is there ---


def test_stream_is_read_from_all_its_segments(data: DataDirectory, log: SegmentLog) -> None:
    stream = data.queue("s")
    for count in (3, 1, 5):
        stream.append(count)
    contents = log.contents("/", "s")
    assert (contents.first_offset, contents.next_offset, contents.queue.kind) == (0, 9, "stream")
    assert read(log, whole(log, "s")) == numbered(range(9))


def test_queue_is_read_less_what_is_acked_in_all_its_parts(data: DataDirectory, log: SegmentLog) -> None:
    queue = data.queue("q", kind="classic")
    queue.ack(queue.append(5), [1, 3])
    queue.append(2, part="priority-3")
    queue.append(2, part="seen")
    assert read(log, whole(log, "q")) == numbered([0, 2, 4, 5, 6])


def test_stream_without_a_message_is_empty(data: DataDirectory, log: SegmentLog) -> None:
    data.queue("s").append(0)
    contents = log.contents("/", "s")
    assert contents.first_offset == contents.next_offset
    assert whole(log, "s") == []


def test_queue_without_a_file_is_empty(data: DataDirectory, log: SegmentLog) -> None:
    data.queue("q", kind="classic")
    assert log.contents("/", "q").segments == ()


def test_stream_whose_first_segments_are_gone_begins_later(data: DataDirectory, log: SegmentLog) -> None:
    stream = data.queue("s")
    stream.append(3).unlink()
    stream.append(2)
    assert log.contents("/", "s").first_offset == 3
    assert read(log, whole(log, "s")) == numbered([3, 4])


def test_queues_of_a_vhost_are_listed(data: DataDirectory, log: SegmentLog) -> None:
    data.queue("a")
    data.queue("b", kind="quorum")
    data.queue("c", vhost="other")
    assert [(queue.name, queue.kind) for queue in log.queues("/")] == [("a", "stream"), ("b", "quorum")]


def test_unknown_queue_is_named(data: DataDirectory, log: SegmentLog) -> None:
    with pytest.raises(UnknownQueue, match="no queue 'no' in vhost '/': change the option subscribe"):
        log.contents("/", "no")


def test_log_can_be_sent_to_executors(data: DataDirectory, log: SegmentLog) -> None:
    data.queue("s").append(2)
    sent: SegmentLog = pickle.loads(pickle.dumps(log))  # noqa: S301 - what was just made
    assert read(sent, pickle.loads(pickle.dumps(whole(log, "s")))) == numbered(range(2))  # noqa: S301


@pytest.mark.parametrize("after", range(-1, 12))
def test_offset_of_a_time_is_that_of_the_first_message_then(
    data: DataDirectory, log: SegmentLog, after: int
) -> None:
    stream = data.queue("s")
    for count in (3, 4, 3):
        stream.append(count)
    assert offset_at(log, log.contents("/", "s"), START_MS + after) == min(max(after, 0), 10)


# --- slices ---


@pytest.mark.parametrize("indexed", [True, False])
def test_slice_in_the_middle_of_a_segment_is_read(
    data: DataDirectory, log: SegmentLog, indexed: bool
) -> None:
    segment = data.queue("s").append(50)
    if indexed:
        write_segment_index(segment)
    assert read(log, whole(log, "s", first=20, end=31)) == numbered(range(20, 31))


def test_many_partitions_of_one_segment_have_each_message_once(data: DataDirectory, log: SegmentLog) -> None:
    write_segment_index(data.queue("s").append(50))
    partitions = whole(log, "s", min_partitions=7)
    assert len(partitions) >= 7
    assert read(log, partitions) == numbered(range(50))


def test_record_larger_than_a_chunk_is_read(
    data: DataDirectory, log: SegmentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(log), "chunk_bytes", 64)
    monkeypatch.setattr("warren.pipeline.segments.files.CHUNK_BYTES", 64)
    bodies = [b"x" * size for size in (1, 500, 3, 64, 2000)]
    data.queue("s").append([message(body) for body in bodies])
    assert read(log, whole(log, "s")) == list(enumerate(bodies))


def test_slice_that_names_a_wrong_byte_is_read_from_the_start_of_its_segment(
    data: DataDirectory, log: SegmentLog
) -> None:
    data.queue("s").append(50)
    segment = log.contents("/", "s").segments[0]
    record = (segment.size_bytes - 32) // 50
    for at in (32 + 3, 32 + 30 * record, segment.size_bytes):
        wrong = Slice(segment, 20, 25, at=at, at_offset=15)
        assert read(log, [Partition((Portion(log.contents("/", "s").queue, (wrong,)),))]) == numbered(
            range(20, 25)
        )


# --- damage and loss ---


def test_torn_tail_is_the_end_whatever_is_left_of_it(data: DataDirectory) -> None:
    segment = data.queue("s").append(2)
    content = segment.read_bytes()
    record = (len(content) - 32) // 2
    for left in range(record):
        segment.write_bytes(content[: 32 + record + left])
        log = FileLog(str(data.path))
        assert log.contents("/", "s").next_offset == 1
        assert read(log, whole(log, "s")) == numbered([0])


def test_tail_that_grows_is_found_to_its_end(data: DataDirectory) -> None:
    segment = data.queue("s").append(3)
    content = segment.read_bytes()
    record = (len(content) - 32) // 3
    log = FileLog(str(data.path))
    for count in range(4):
        segment.write_bytes(content[: 32 + count * record + (7 if count < 3 else 0)])
        assert log.contents("/", "s").next_offset == count


def damage(segment: Path, at: int) -> None:
    content = bytearray(segment.read_bytes())
    content[at] ^= 0xFF
    segment.write_bytes(content)


@pytest.mark.parametrize("newest", [True, False])
def test_damaged_record_is_an_error_with_file_and_byte(
    data: DataDirectory, log: SegmentLog, newest: bool
) -> None:
    stream = data.queue("s")
    segment = stream.append(4)
    if not newest:
        stream.append(1)
    record = (segment.stat().st_size - 32) // 4
    damage(segment, 32 + record + 40)
    with pytest.raises(
        DataLoss, match=rf"{segment.stem}|/1\?part=.* at byte {32 + record}.*failOnDataLoss"
    ) as told:
        read(log, whole(log, "s"))
    assert f"at byte {32 + record}" in str(told.value)


def test_damaged_record_is_skipped_and_told_without_fail_on_data_loss(
    data: DataDirectory, log: SegmentLog, caplog: pytest.LogCaptureFixture
) -> None:
    segment = data.queue("s").append(4)
    damage(segment, 32 + (segment.stat().st_size - 32) // 4 + 40)
    assert read(log, whole(log, "s"), fail=False) == numbered([0, 2, 3])
    assert "is damaged at byte" in caplog.text


def test_closed_segment_that_ends_early_lacks_offsets(
    data: DataDirectory, log: SegmentLog, caplog: pytest.LogCaptureFixture
) -> None:
    stream = data.queue("s")
    segment = stream.append(4)
    stream.append(1)
    segment.write_bytes(segment.read_bytes()[:-60])
    partitions = whole(log, "s")
    with pytest.raises(DataLoss, match="offsets 2 to 3 of stream 's' are missing"):
        read(log, partitions)
    assert read(log, partitions, fail=False) == numbered([0, 1, 4])
    assert "are missing" in caplog.text


def test_gap_behind_a_whole_record_is_what_a_power_cut_took_and_no_loss(
    data: DataDirectory, log: SegmentLog, caplog: pytest.LogCaptureFixture
) -> None:
    stream = data.queue("s")
    segment = stream.append(4)
    stream.append(1)
    content = segment.read_bytes()
    segment.write_bytes(content[: 32 + (len(content) - 32) // 2])
    assert read(log, whole(log, "s")) == numbered([0, 1, 4])
    assert "offsets 2 to 3 of stream 's' are missing" in caplog.text


def test_segment_that_is_made_but_not_written_yet_does_not_end_the_one_before(data: DataDirectory) -> None:
    stream = data.queue("s")
    segment = stream.append(4)
    following = stream.append(1)
    contents = {file: file.read_bytes() for file in (segment, following)}
    segment.write_bytes(contents[segment][: 32 + (len(contents[segment]) - 32) // 2])
    following.write_bytes(b"")
    log = FileLog(str(data.path))
    assert log.contents("/", "s").next_offset == 2
    assert read(log, whole(log, "s")) == numbered(range(2))
    for file, content in contents.items():
        file.write_bytes(content)
    assert read(log, whole(log, "s")) == numbered(range(5))


def test_segment_that_grew_while_the_directory_was_read_is_read_to_its_end(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = data.queue("s")
    segment = stream.append(4)
    stream.append(1)
    content = segment.read_bytes()
    segment.write_bytes(content[: 32 + (len(content) - 32) // 2])

    def grow(directory: Path) -> Iterator[tuple[int, int]]:
        yield from list(_segment_sizes(directory))
        segment.write_bytes(content)

    monkeypatch.setattr("warren.pipeline.segments.files._segment_sizes", grow)
    log = FileLog(str(data.path))
    assert read(log, whole(log, "s")) == numbered(range(5))


def test_segment_that_vanished_since_it_was_planned_is_told(
    data: DataDirectory, log: SegmentLog, caplog: pytest.LogCaptureFixture
) -> None:
    stream = data.queue("s")
    segments = [stream.append(3), stream.append(2)]
    partitions = whole(log, "s")
    segments[0].unlink()
    with pytest.raises(DataLoss, match=r"offsets 0 to 2 of stream 's' are gone: .*failOnDataLoss"):
        read(log, partitions)
    assert read(log, partitions, fail=False) == numbered([3, 4])
    assert "are gone" in caplog.text


def test_segment_of_a_queue_that_vanished_was_acked(data: DataDirectory, log: SegmentLog) -> None:
    queue = data.queue("q", kind="classic")
    segments = [queue.append(3), queue.append(2)]
    partitions = whole(log, "q")
    segments[0].unlink()
    assert read(log, partitions) == numbered([3, 4])


def test_segment_of_a_later_version_is_refused(data: DataDirectory) -> None:
    segment = data.queue("s").append(1)
    damage(segment, 8)
    log = FileLog(str(data.path))
    with pytest.raises(Unreadable, match=f"{segment.name}: version"):
        read(log, whole(log, "s"))


def test_ack_file_that_is_damaged_acks_nothing(data: DataDirectory, log: SegmentLog) -> None:
    queue = data.queue("q", kind="classic")
    segment = queue.append(2)
    queue.ack(segment, [0])
    damage(segment.with_suffix(".acks"), 9)
    assert read(log, whole(log, "q")) == numbered([0, 1])


# --- what stands in the way ---


def test_path_that_is_no_data_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no such directory: change the option path"):
        FileLog(str(tmp_path / "no")).contents("/", "s")
    with pytest.raises(
        Unreachable, match="not a data directory: it has no file VERSION: change the option path"
    ):
        FileLog(str(tmp_path)).contents("/", "s")


def test_directory_of_a_deleted_queue_is_looked_for_anew(data: DataDirectory) -> None:
    stream = data.queue("s")
    stream.append(2)
    log = FileLog(str(data.path))
    assert log.contents("/", "s").next_offset == 2
    shutil.rmtree(stream.path)
    data.queue("s").append(1)
    assert log.contents("/", "s").next_offset == 1


def test_unreachable_broker_is_named_with_its_option(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.pipeline.segments.http.PAUSES_SECONDS", (0.0,))
    with SegmentApi(str(data.path)) as gone:
        url = gone.url
    with pytest.raises(Unreachable, match=rf"no broker answers at {url}: .*change the option url"):
        HttpLog(url, "guest", "guest").contents("/", "s")


def test_wrong_password_names_user_and_options(api: SegmentApi) -> None:
    with (
        closing(HttpLog(api.url, "guest", "wrong")) as log,
        pytest.raises(
            Refused, match=r"does not let user 'guest' in: .*: change the options user and password"
        ),
    ):
        log.contents("/", "s")


def test_no_permission_names_queue_and_user(data: DataDirectory, api: SegmentApi) -> None:
    data.queue("s")
    api.forbidden.add("s")
    with (
        closing(HttpLog(api.url, "guest", "guest")) as log,
        pytest.raises(
            Refused, match="user 'guest' may not read queue 's': no read permission: change the option"
        ),
    ):
        log.contents("/", "s")


@pytest.mark.parametrize("url", ["localhost:15672", "amqp://localhost", "http://"])
def test_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(BadOption, match="is not like http://host:15672"):
        HttpLog(url, "guest", "guest")


def test_broker_that_is_not_there_for_a_moment_is_asked_again(
    data: DataDirectory, api: SegmentApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.pipeline.segments.http.PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr("warren.pipeline.segments.http.LATER_PAUSES_SECONDS", ())
    data.queue("s").append(1)
    with closing(HttpLog(api.url, "guest", "guest")) as log:
        api.failures = [503, 503]
        assert log.contents("/", "s").next_offset == 1
        api.failures = [503, 503, 503]
        with pytest.raises(Unreachable, match="answers for queue 's'"):
            log.contents("/", "s")


@pytest.mark.parametrize("was_there", [True, False])
def test_broker_that_was_there_gets_time_to_start_again(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    data.queue("s").append(1)
    with SegmentApi(str(data.path)) as gone, closing(HttpLog(gone.url, "guest", "guest")) as log:
        if was_there:
            log.contents("/", "s")
    sent: HttpLog = pickle.loads(pickle.dumps(log))  # noqa: S301 - what was just made
    pauses: list[float] = []
    monkeypatch.setattr("warren.pipeline.segments.http.time.sleep", pauses.append)
    with pytest.raises(Unreachable, match="no broker answers"):
        sent.contents("/", "s")
    assert (sum(pauses) > 20) is was_there


def test_many_queues_are_one_question(data: DataDirectory, api: SegmentApi) -> None:
    for i in range(3):
        data.queue(f"s{i}").append(i)
    names = ["s0", "s1", "s2", "no"]
    with closing(HttpLog(api.url, "guest", "guest")) as log:
        found, ends = log.contents_of("/", names), log.ends_of("/", names)
        each = {name: log.contents("/", name) for name in names[:3]}
    assert found == each
    assert ends == {name: contents.ends for name, contents in found.items()}
    assert {name: each.next_offset for name, each in ends.items()} == {"s0": 0, "s1": 1, "s2": 2}
    assert api.asked.count("POST") == 2


def test_wait_is_kept_where_the_broker_lets_nobody_wait(
    data: DataDirectory, api: SegmentApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.queue("s").append(1)
    pauses: list[float] = []
    monkeypatch.setattr("warren.pipeline.segments.http.time.sleep", pauses.append)
    with closing(HttpLog(api.url, "guest", "guest")) as log:
        log.ends_of("/", ["s"], wait_s=500.0)  # the first call has nothing to compare with, so it never waits
        assert pauses == []
        log.ends_of("/", ["s"], wait_s=500.0)
    assert len(pauses) == 1
    assert 100 < pauses[0] <= 500


def test_files_are_looked_at_a_fiftieth_of_the_time_while_a_query_waits(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.queue("s").append(1)
    computed = iter((1.0, 1.0, 1.2, 1.2, 1.3, 1.3, 9.0, 9.0))
    pauses: list[float] = []
    monkeypatch.setattr("warren.pipeline.segments.files.time.process_time", lambda: next(computed))
    monkeypatch.setattr("warren.pipeline.segments.files.time.sleep", pauses.append)
    log = FileLog(str(data.path))
    for wait_s in (0.0, 100.0, 0.0, 100.0):
        assert log.ends_of("/", ["s"], wait_s=wait_s)["s"].next_offset == 1
    assert pauses == pytest.approx([0.2 * 49, 100.0])


def test_looking_again_at_many_streams_does_not_look_for_all_with_each(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When each stream looked for all of them, a look at a hundred streams took 96 ms."""
    names = [f"s{i}" for i in range(20)]
    for name in names:
        data.queue(name).append(1)
    log = FileLog(str(data.path))
    log.ends_of("/", names)
    asked: list[Path] = []
    real = Path.exists

    def noted(path: Path) -> bool:
        asked.append(path)
        return real(path)

    monkeypatch.setattr(Path, "exists", noted)
    assert len(log.ends_of("/", names)) == len(names)
    assert len(asked) <= len(names)


def test_progress_is_put_once_under_its_name(api: SegmentApi) -> None:
    with closing(HttpLog(api.url, "guest", "guest")) as log:
        log.put_offset(QueueRef("/", "s", "stream"), "my query", 7)
    assert api.offsets == {"/api/streams///s/offsets/my query": 7}
