"""`/api/log`, and `warren log` on it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.http_api import Api, make_broker
from warren.cli.main import main
from warren.server import log_tail, watchdog
from warren.server.log_tail import LogTail


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    logger = logging.getLogger("warren")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(before)


@pytest.fixture(autouse=True)
def no_turn_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, slow turns would be logged among the lines that a test expects."""
    monkeypatch.setattr(watchdog, "SLOW_SECONDS", math.inf)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with make_broker(tmp_path / "data") as broker, aiohttp.ClientSession() as session:
        yield Api(broker, session)


def log(api: Api, event: str, **fields: object) -> None:
    api.broker.log.info(event, **fields)


async def test_lines_have_numbers_levels_and_fields(api: Api) -> None:
    log(api, "something happened", queue="q", count=3, other=Path("/x"))
    answer = (await api.get("/api/log?lines=1")).json
    line = answer["lines"][0]
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "number": answer["last"],
        "level": "info",
        "event": "something happened",
        "queue": "q",
        "count": 3,
        "other": "/x",
    }


async def test_errors_come_with_their_traceback(api: Api) -> None:
    api.broker.log.error("failed", exc_info=ValueError("the reason"))
    line = (await api.get("/api/log?lines=1")).json["lines"][0]
    assert line["level"] == "error"
    assert "ValueError: the reason" in line["exception"]


async def test_only_lines_after_a_number_come(api: Api) -> None:
    last = (await api.get("/api/log")).json["last"]
    log(api, "one")
    log(api, "two")
    answer = (await api.get(f"/api/log?after={last}")).json
    assert [line["event"] for line in answer["lines"]] == ["one", "two"]
    assert (await api.get(f"/api/log?after={answer['last']}")).json["lines"] == []


async def test_request_waits_for_the_next_line(api: Api) -> None:
    last = (await api.get("/api/log")).json["last"]
    waiting = asyncio.create_task(api.get(f"/api/log?after={last}&wait_ms=10000"))
    while not api.broker.log_tail._waiters:  # noqa: ASYNC110 - nothing tells that a request waits
        await asyncio.sleep(0)
    log(api, "at last")
    assert [line["event"] for line in (await waiting).json["lines"]] == ["at last"]


async def test_wait_that_brings_nothing_ends(api: Api) -> None:
    last = (await api.get("/api/log")).json["last"]
    assert (await api.get(f"/api/log?after={last}&wait_ms=1")).json == {"last": last, "lines": []}


@pytest.mark.parametrize("query", ["after=x", "lines=-1", "wait_ms=1.5"])
async def test_wrong_numbers_are_refused(api: Api, query: str) -> None:
    assert (await api.get(f"/api/log?{query}")).status == 400


async def test_only_so_many_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "LINES_MAX", 3)
    tail = LogTail(asyncio.get_running_loop())
    for number in range(5):
        tail.filter(logging.makeLogRecord({"msg": f"{number}"}))
    assert [line["event"] for line in tail.after(0, 10)] == ["2", "3", "4"]
    assert [line["number"] for line in tail.after(4, 10)] == [5]
    assert tail.after(0, 0) == []


async def test_stopped_broker_no_longer_looks_at_the_log(tmp_path: Path) -> None:
    async with make_broker(tmp_path / "data") as broker:
        assert broker.log_tail in logging.getLogger("warren").filters
    assert broker.log_tail not in logging.getLogger("warren").filters


async def test_warren_log_prints_lines(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    log(api, "something happened", queue="a\tb")
    url = f"http://guest:guest@{api.broker.services['http'].address}"
    words = ["log", "--no-follow", "-n", "1", "--url", url]
    assert await asyncio.to_thread(main, words) == 0
    assert capsys.readouterr().out.endswith("Z [info] something happened queue=a\\tb\n")
    assert await asyncio.to_thread(main, [*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queue"] == "a\tb"


async def test_warren_queues_pages_through_our_lists(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    from warren import commands

    for number in range(1200):
        api.broker.execute(commands.DeclareQueue(vhost="/", name=f"q{number:04}"))
    url = f"http://guest:guest@{api.broker.services['http'].address}"
    words = ["queues", "ls", "name", "messages", "--no-header", "--name", "q", "--url", url]
    assert await asyncio.to_thread(main, words) == 0
    assert capsys.readouterr().out == "".join(f"q{number:04}\t0\n" for number in range(1200))
