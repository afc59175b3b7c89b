"""The list of segments, and their bytes."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.http_api import SEGMENT_BYTES, Api
from tests.support.queues import classic
from tests.support.rounds import Rounds
from warren import commands
from warren.amqp.properties import BasicProperties
from warren.broker.message import Message
from warren.broker.outcome import ON_ITS_WAY
from warren.broker.queue import Queue
from warren.management import json_text
from warren.management.app import HttpService
from warren.storage.format import records
from warren.storage.log_listing import logs_of

LIST = "/api/segments/%2F/q"


async def listing(api: Api, path: str = LIST) -> dict[str, Any]:
    answer = await api.get(path)
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/json"
    found: dict[str, Any] = answer.json
    return found


async def read(api: Api, segment: dict[str, Any], **more: Any) -> bytes:
    part = f"?part={segment['part']}" if segment["part"] else ""
    answer = await api.get(f"{LIST}/{segment['base']}{part}", **more)
    assert answer.status in {200, 206}, answer.body
    return answer.body


def bodies(data: bytes) -> list[bytes]:
    return [record.message.body for record in records(data)]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def ack(queue: Queue, count: int) -> None:
    for _ in range(count):
        entry = queue.get(no_ack=False)
        assert entry is not None
        queue.settle(entry)


def waiting(found: dict[str, Any]) -> set[int]:
    """The listed offsets that are not acked."""
    listed: set[int] = set()
    for segment in found["segments"]:
        listed |= set(range(segment["first_offset"], segment["last_offset"] + 1))
        for first, count in segment["acked"]:
            listed -= set(range(first, first + count))
    return listed


async def test_queue_without_messages_has_no_segments(api: Api) -> None:
    api.declare("q")
    assert await listing(api) == {
        "vhost": "/",
        "queue": "q",
        "type": "classic",
        "first_offset": 0,
        "next_offset": 0,
        "segments": [],
    }


async def test_segment_is_listed_with_offsets_times_and_size(api: Api) -> None:
    before_ms = api.broker.node.clock.refresh()
    await api.publish(api.declare("q", queue_type="quorum"), numbered(3))
    after_ms = api.broker.node.clock.refresh()
    found = await listing(api)
    times = [found["segments"][0].pop(name) for name in ("first_timestamp", "last_timestamp")]
    assert before_ms <= times[0] <= times[1] <= after_ms
    size = (api.broker.config.data_dir / "queues/1/00000000000000000001.seg").stat().st_size
    assert (found["type"], found["first_offset"], found["next_offset"]) == ("quorum", 0, 3)
    assert found["segments"] == [
        {
            "part": "",
            "base": 1,
            "first_offset": 0,
            "last_offset": 2,
            "bytes": size,
            "closed": False,
            "acked": [],
        }
    ]


async def test_two_thousand_messages_are_listed_less_what_is_acked(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, numbered(2_000))
    ack(queue, 700)
    kept = [queue.get(no_ack=False) for _ in range(100)]  # delivered, and not acked
    ack(queue, 50)
    found = await listing(api)
    assert len(found["segments"]) > 5
    assert waiting(found) == {*range(700, 800), *range(850, 2_000)}
    assert found["next_offset"] == 2_000
    assert found["first_offset"] == found["segments"][0]["first_offset"]
    for one, next_one in pairwise(found["segments"]):
        assert one["closed"]
        assert one["last_offset"] + 1 == next_one["first_offset"]
    assert all(kept)


async def test_bytes_of_all_segments_are_all_messages(api: Api) -> None:
    await api.publish(api.declare("q"), numbered(1_000))
    found = await listing(api)
    read_back = [body for segment in found["segments"] for body in bodies(await read(api, segment))]
    assert read_back == numbered(1_000)


async def test_segment_read_page_by_page_is_the_same_as_read_whole(api: Api) -> None:
    await api.publish(api.declare("q"), [b"x" * 700_000, b"y" * 100])
    segment = (await listing(api))["segments"][0]
    pages = []
    for start in range(0, segment["bytes"], 300_000):
        stop = min(start + 300_000, segment["bytes"])
        answer = await api.get(f"{LIST}/{segment['base']}", headers={"Range": f"bytes={start}-{stop - 1}"})
        assert answer.status == 206
        assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{segment['bytes']}"
        assert answer.headers["Content-Type"] == "application/octet-stream"
        pages.append(answer.body)
    whole = await api.get(f"{LIST}/{segment['base']}")
    assert (whole.status, whole.headers["Accept-Ranges"]) == (200, "bytes")
    assert whole.body == b"".join(pages)
    assert len(whole.body) == segment["bytes"]


async def test_times_of_segments_are_those_of_their_first_and_last_record(api: Api) -> None:
    queue = api.declare("q")
    for _ in range(5):
        await api.publish(queue, [b"x" * 1_000])
    for segment in (await listing(api))["segments"]:
        times = [record.time_ms for record in records(await read(api, segment))]
        assert (segment["first_timestamp"], segment["last_timestamp"]) == (times[0], times[-1])


async def test_tail_that_grows_is_listed_anew_each_time(api: Api) -> None:
    queue = api.declare("q")
    for count in range(1, 6):
        await api.publish(queue, [b"x"])
        found = await listing(api)
        assert (found["next_offset"], found["segments"][0]["last_offset"]) == (count, count - 1)


async def test_what_is_not_synced_yet_is_neither_listed_nor_served(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"safe"])
    (_part, log), *_ = logs_of(queue)
    segment = log.segments[0]
    safe = segment.written
    segment.end, segment.last = segment.end + 64, segment.last + 1  # one more record is being written
    with open(segment.path + ".seg", "ab") as file:  # noqa: ASYNC230, PTH123 - half of that record
        file.write(b"torn" * 8)
    found = (await listing(api))["segments"][0]
    assert (found["bytes"], found["last_offset"]) == (safe, 0)
    data = await read(api, found)
    assert (len(data), bodies(data)) == (safe, [b"safe"])
    beyond = await api.get(f"{LIST}/1", headers={"Range": f"bytes={safe}-"})
    assert beyond.status == 416
    segment.end, segment.last = segment.end - 64, segment.last - 1


async def test_what_only_this_node_has_of_a_replicated_queue_is_not_listed(api: Api) -> None:
    queue, rounds = classic(api.declare("q")), Rounds()
    await api.publish(queue, [b"everywhere"])
    log = queue.lane.log
    assert log is not None
    log.holds_back, log.safety = True, rounds
    queue.lane.take_over(log, queue.lane.position)
    assert queue.publish(Message(b"\0", b"\x01q", b"\0\0", b"only here", True)) == ON_ITS_WAY
    written = asyncio.get_running_loop().create_future()
    api.broker.store.safety.when_safe(written.set_result)
    await written
    assert (await listing(api))["next_offset"] == 1
    rounds.end(1)
    assert (await listing(api))["next_offset"] == 2


async def test_range_that_cannot_be_satisfied_is_416_and_says_how_much_there_is(api: Api) -> None:
    await api.publish(api.declare("q"), [b"x"])
    size = (await listing(api))["segments"][0]["bytes"]
    answer = await api.get(f"{LIST}/1", headers={"Range": "bytes=1000000-"})
    assert answer.status == 416
    assert answer.headers["Content-Range"] == f"bytes */{size}"
    assert answer.json["error"] == "range_not_satisfiable"


async def test_range_on_condition_is_ignored_since_there_is_nothing_to_compare(api: Api) -> None:
    await api.publish(api.declare("q"), [b"x"])
    answer = await api.get(f"{LIST}/1", headers={"Range": "bytes=0-0", "If-Range": '"tag"'})
    assert answer.status == 200


async def test_head_tells_the_size_and_sends_nothing(api: Api) -> None:
    await api.publish(api.declare("q"), [b"x"])
    size = (await listing(api))["segments"][0]["bytes"]
    answer = await api.request("HEAD", f"{LIST}/1")
    assert (answer.status, answer.headers["Content-Length"], answer.body) == (200, str(size), b"")
    assert (await api.request("HEAD", LIST)).body == b""


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/segments/%2F/absent", 404),
        ("/api/segments/absent/q", 404),
        (f"{LIST}/2", 404),
        (f"{LIST}/0", 404),
        (f"{LIST}/1?part=priority-1", 404),
        (f"{LIST}/1?part=../1", 404),
        (f"{LIST}/x", 400),
        (f"{LIST}/-1", 400),
        (f"{LIST}/{10**20}", 400),
    ],
)
async def test_what_is_not_there_is_404_and_what_is_no_base_400(api: Api, path: str, status: int) -> None:
    await api.publish(api.declare("q"), [b"x"])
    answer = await api.get(path)
    assert answer.status == status
    assert set(answer.json) == {"error", "reason"}


async def test_segment_that_is_done_with_is_not_listed_and_404(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"x" * SEGMENT_BYTES, b"y"])
    assert [segment["base"] for segment in (await listing(api))["segments"]] == [1, 2]
    ack(queue, 1)
    await api.end_turn()
    assert [segment["base"] for segment in (await listing(api))["segments"]] == [2]
    assert (await api.get(f"{LIST}/1")).status == 404


async def test_file_that_somebody_deleted_is_left_out_and_404(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"x" * SEGMENT_BYTES, b"y"])
    (_part, log), *_ = logs_of(queue)
    Path(log.segments[0].path + ".seg").unlink()  # noqa: ASYNC240
    assert [segment["base"] for segment in (await listing(api))["segments"]] == [2]
    assert (await api.get(f"{LIST}/1")).status == 404


async def test_file_that_is_shorter_than_it_should_be_breaks_the_answer_off(api: Api) -> None:
    await api.publish(api.declare("q"), [b"x" * 600_000])
    path = api.broker.config.data_dir / "queues/1/00000000000000000001.seg"
    whole = path.read_bytes()
    path.write_bytes(whole[:300_000])
    with pytest.raises(aiohttp.ClientError):
        await api.get(f"{LIST}/1")
    path.write_bytes(whole)


async def test_priorities_are_parts_with_segments_of_their_own(api: Api) -> None:
    queue = api.declare("q", max_priority=3)
    for priority in (0, 2, 2, 3):
        await api.publish(queue, [b"%d" % priority], priority=priority)
    found = (await listing(api))["segments"]
    assert [(row["part"], row["last_offset"]) for row in found] == [
        ("", 0),
        ("priority-2", 1),
        ("priority-3", 0),
    ]
    assert [bodies(await read(api, row)) for row in found] == [[b"0"], [b"2", b"2"], [b"3"]]


async def test_only_what_is_on_disk_is_listed(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"kept"])
    queue.publish(Message(b"\0", b"\1q", BasicProperties().encode(), b"lost", persistent=False))
    await api.publish(queue, [b"kept too"])
    found = await listing(api)
    assert bodies(await read(api, found["segments"][0])) == [b"kept", b"kept too"]
    assert (found["next_offset"], queue.message_count) == (3, 3)


async def test_list_is_the_same_after_a_restart(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, numbered(500))
    ack(queue, 123)
    before = await listing(api)
    await api.broker.stop()
    await api.broker.start()
    after = await listing(api)
    assert waiting(after) == waiting(before) == set(range(123, 500))
    times = [[row["first_timestamp"], row["last_timestamp"]] for row in before["segments"]]
    assert [[row["first_timestamp"], row["last_timestamp"]] for row in after["segments"]] == times


async def test_stream_has_an_identity_that_another_of_its_name_has_not(api: Api) -> None:
    await api.publish(api.declare("q", queue_type="stream"), numbered(3))
    found = await listing(api)
    assert (await listing(api))["stream_id"] == found["stream_id"] != ""
    path = f"{LIST}/{found['segments'][0]['base']}?stream_id={found['stream_id']}"
    assert (await api.get(path)).status == 200
    api.broker.execute(commands.DeleteQueue(vhost="/", name="q"))
    await api.publish(api.declare("q", queue_type="stream"), numbered(5))
    assert (await listing(api))["stream_id"] not in {"", found["stream_id"]}
    answer = await api.get(path)
    assert (answer.status, "made anew" in answer.json["reason"]) == (404, True)


async def test_identity_of_a_stream_is_made_once_and_old_directories_get_one(api: Api) -> None:
    await api.publish(api.declare("q", queue_type="stream"), numbered(3))
    first = (await listing(api))["stream_id"]
    file = api.broker.config.data_dir / "identity"
    assert first == f"{file.read_text().strip()}-1"
    ids = []
    for lost in (False, True, False):
        await api.broker.stop()
        if lost:
            file.unlink()
        await api.broker.start()
        ids.append((await listing(api))["stream_id"])
    assert ids[0] == first
    assert ids[1] == ids[2]
    assert ids[1] not in {"", first}


async def test_listing_goes_on_while_messages_come_and_go(api: Api) -> None:
    """Every list is consistent: the bytes that it calls safe can be read."""
    queue = api.declare("q")
    done = asyncio.Event()

    async def work() -> None:
        for _ in range(20):
            await api.publish(queue, numbered(100))
            ack(queue, 90)
        done.set()

    working = asyncio.create_task(work())
    while not done.is_set():
        for segment in (await listing(api))["segments"]:
            answer = await api.get(f"{LIST}/{segment['base']}")
            assert answer.status == 404 or len(answer.body) >= segment["bytes"]
            if answer.status == 200:
                last = [record.position for record in records(answer.body[: segment["bytes"]])][-1]
                assert last - 1 == segment["last_offset"]
    await working


async def ask_and_take_nothing(api: Api) -> asyncio.StreamWriter:
    """Ask for more bytes than the kernel's buffers take, and read none of them."""
    await api.publish(api.declare("q"), [b"x" * 30_000_000])
    host, _, port = api.broker.services["http"].address.rpartition(":")
    _reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    login = "Z3Vlc3Q6Z3Vlc3Q="
    writer.write(f"GET {LIST}/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n\r\n".encode())
    await writer.drain()
    return writer


async def test_client_that_takes_nothing_holds_up_nobody(api: Api) -> None:
    writer = await ask_and_take_nothing(api)
    for _ in range(20):
        assert len((await listing(api))["segments"]) == 1
    writer.transport.abort()


async def test_client_that_takes_nothing_for_long_is_left(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "STALL_SECONDS_MAX", 0.05)
    service = api.broker.services["http"]
    assert isinstance(service, HttpService)
    assert service.runner is not None
    server = service.runner.server
    assert server is not None
    writer = await ask_and_take_nothing(api)
    async with asyncio.timeout(20):
        while not server.connections:  # noqa: ASYNC110 - aiohttp has no event for that
            await asyncio.sleep(0.01)
        while server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    writer.transport.abort()


@pytest.mark.parametrize("base", ["9" * 21, "9" * 5_000, str(2**64), "-1", "1.5", "nan", "1e3", "%D9%A3"])
async def test_base_that_is_none_is_400(api: Api, base: str) -> None:
    api.declare("q")
    answer = await api.get(f"{LIST}/{base}")
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert len(answer.json["reason"]) < 200
