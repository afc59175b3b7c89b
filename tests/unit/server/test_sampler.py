"""Samples are taken of everything, in turns that leave room for others."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

import warren
from warren import commands
from warren.broker.history import TICK_SECONDS
from warren.server.pace import TURN_SECONDS, at_a_pace
from warren.server.sampler import APART_SECONDS_MIN, next_due

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


async def test_a_tick_counts_when_all_samples_are_taken(tmp_path: object) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        timeline = broker.sampler.timeline
        before = timeline.tick
        await broker.sampler.take(4.5)
        assert (timeline.tick, timeline.seconds) == (before + 1, 4.5)
        assert timeline.time_of(timeline.tick - 2) == timeline.time_ms - 2_000 * TICK_SECONDS


def test_ticks_are_on_time_unless_the_loop_is_late() -> None:
    assert next_due(100.0, 100.2) == 100.0 + TICK_SECONDS


@pytest.mark.parametrize("late_seconds", [TICK_SECONDS, 2 * TICK_SECONDS, 3_600])
def test_tick_behind_a_late_one_does_not_come_at_once(late_seconds: float) -> None:
    now = 100.0 + late_seconds
    assert now + APART_SECONDS_MIN <= next_due(100.0, now) <= now + TICK_SECONDS


async def test_restored_queues_do_not_count_as_created(tmp_path: object) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        broker.execute(commands.DeclareQueue(vhost="/", name="q", durable=True))
        assert broker.churn.counts["queue_created"] == 1
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        assert "q" in broker.node.vhosts["/"].queues
        assert broker.churn.counts["queue_created"] == 0
