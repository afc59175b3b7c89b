"""The disk's thread and the event loop: how the loop hears that a round is over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import warren
from tests.support.waiting import until_readable
from warren.broker.turns import SHARE_MAX
from warren.server.store_runner import StoreRunner
from warren.storage import commit

WAIT_SECONDS_MAX = 30
TURNS = 5  # enough for a round to begin
STEPS = 4_000  # of a job, too many for a few turns


async def begin_round(storage: StoreRunner) -> asyncio.Future[int]:
    """Begin a round, and wait for the disk's thread while the loop stands still."""
    for _ in range(2):  # the first ends rounds that were under way
        over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        storage.store.safety.when_safe(over.set_result)
        if storage.store.commit.flight is not None:
            await over
    for _ in range(TURNS):
        if storage.store.commit.flight is None:
            await asyncio.sleep(0)
    wait_for_disk(storage)
    return over


def wait_for_disk(storage: StoreRunner) -> None:
    assert until_readable(storage.disk.done, WAIT_SECONDS_MAX)
    while not storage.disk.has_result():
        time.sleep(0.001)


async def test_a_round_of_few_segments_ends_after_a_read(tmp_path: Path) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
        for _ in range(20):  # the loop may find the disk readable although its result was taken
            over = await begin_round(broker.storage)
            assert not over.done()
            broker.storage.after_read()
            assert over.done()
            await asyncio.sleep(0)


async def test_a_round_of_many_segments_waits_for_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "NARROW_MAX", -1)
    async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
        over = await begin_round(broker.storage)
        broker.storage.after_read()
        assert not over.done()
        await asyncio.wait_for(over, WAIT_SECONDS_MAX)


async def test_jobs_in_line_are_over_before_the_store_is_closed(tmp_path: Path) -> None:
    """They may still have to write what was done, such as that dead letters have left their old queues."""
    steps = iter(range(STEPS))
    async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
        broker.node.turns.spread(SHARE_MAX for _ in steps)
        assert broker.node.turns.jobs
    assert next(steps, None) is None
