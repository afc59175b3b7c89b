"""Samples are taken of everything, in turns that leave room for others."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

import warren
from warren import commands
from warren.broker.history import TICK_SECONDS
from warren.server.pace import TURN_SECONDS, at_a_pace
from warren.server.sampler import next_due

QUEUES = 300


async def turns_of(work: asyncio.Task[None]) -> int:
    """How many turns of the loop went by until the task was done."""
    for turns in count():
        if work.done():
            await work
            return turns
        await asyncio.sleep(0)
    raise AssertionError("a count has no end")


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which each look at it takes a tenth of a turn."""
    times = count(0.0, TURN_SECONDS / 10)
    monkeypatch.setattr("warren.server.pace.time.perf_counter", lambda: next(times))


@pytest.mark.usefixtures("slow_clock")
async def test_long_work_is_spread_over_turns() -> None:
    done: list[int] = []

    async def work() -> None:
        async for number in at_a_pace(range(100)):
            done.append(number)  # noqa: PERF401 - the loop is what is tested

    turns = await turns_of(asyncio.create_task(work()))
    assert done == list(range(100))
    assert turns >= 100 // 20


async def test_a_tick_over_many_queues_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        for number in range(QUEUES):
            broker.execute(commands.DeclareQueue(vhost="/", name=f"q{number}"))
        times = count(0.0, TURN_SECONDS / 10)
        monkeypatch.setattr("warren.server.pace.time.perf_counter", lambda: next(times))
        assert await turns_of(asyncio.create_task(broker.sampler.take())) >= QUEUES // 20
        assert broker.sampler.timeline.tick >= 1


@pytest.mark.parametrize(("now", "due"), [(10.0, 15.0), (14.9, 15.0), (15.0, 20.0), (200.0, 205.0)], ids=str)
def test_a_late_tick_is_not_followed_by_another_at_once(now: float, due: float) -> None:
    assert next_due(10.0, now) == due


async def test_a_tick_counts_when_all_samples_are_taken(tmp_path: object) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        timeline = broker.sampler.timeline
        before = timeline.tick
        await broker.sampler.take(4.5)
        assert (timeline.tick, timeline.seconds) == (before + 1, 4.5)
        assert timeline.time_of(timeline.tick - 2) == timeline.time_ms - 2_000 * TICK_SECONDS


async def test_restored_queues_do_not_count_as_created(tmp_path: object) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        broker.execute(commands.DeclareQueue(vhost="/", name="q", durable=True))
        assert broker.churn.counts["queue_created"] == 1
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        assert "q" in broker.node.vhosts["/"].queues
        assert broker.churn.counts["queue_created"] == 0
