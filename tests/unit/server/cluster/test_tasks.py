"""Tasks of a node: what one of them fails with is reported, and the others go on."""

from __future__ import annotations

import asyncio

from warren.server.cluster.tasks import Tasks

SECONDS_MAX = 60


async def test_work_that_fails_is_reported_and_done_again() -> None:
    reported: list[Exception] = []
    tasks, over = Tasks(reported.append), asyncio.Event()
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise RuntimeError(f"for the {times}. time")
        over.set()

    tasks.repeat(work)
    async with asyncio.timeout(SECONDS_MAX):
        await over.wait()
    await tasks.stop()
    assert [str(error) for error in reported] == ["for the 1. time", "for the 2. time"]


async def test_what_a_task_fails_with_is_reported() -> None:
    reported: list[Exception] = []
    tasks = Tasks(reported.append)

    async def fail() -> None:
        raise RuntimeError("it cannot be done")

    await asyncio.wait([tasks.spawn(fail())])
    await tasks.stop()
    assert [str(error) for error in reported] == ["it cannot be done"]
