"""Steps of coroutines that take long are told, whoever waits for the coroutine."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.machine import Notes
from warren.server.measured import Measured, measure_tasks
from warren.server.watchdog import SLOW_SECONDS, Watchdog

SHORT, LONG = SLOW_SECONDS / 2, 2 * SLOW_SECONDS


class Scene:
    """A watchdog, with a clock that only the coroutines of the tests move."""

    def __init__(self) -> None:
        self.time = 100.0
        self.notes = Notes()
        self.dog = Watchdog(self.notes, lambda: self.time)

    def takes(self, seconds: float) -> None:
        self.time += seconds

    def told(self) -> list[tuple[object, object]]:
        return [(fields["what"], fields["ms"]) for _, fields in self.notes.lines]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def what() -> dict[str, object]:
    return {"what": "work"}


async def test_slow_step_is_told_and_the_time_between_two_steps_is_not(scene: Scene) -> None:
    async def work() -> str:
        scene.takes(SHORT)
        await asyncio.sleep(0)
        scene.takes(LONG)
        await asyncio.sleep(0)
        scene.takes(SHORT)
        return "done"

    async def others() -> None:
        scene.takes(10 * LONG)

    measured = asyncio.create_task(Measured(work(), scene.dog, what))
    await asyncio.gather(measured, others())
    assert measured.result() == "done"
    assert scene.told() == [("work", round(1000 * LONG))]


async def test_many_short_steps_are_not_slow(scene: Scene) -> None:
    async def work() -> None:
        for _ in range(10):
            scene.takes(SHORT)
            await asyncio.sleep(0)

    await Measured(work(), scene.dog, what)
    assert scene.dog.slow_turns == 0


async def test_an_error_passes_and_the_step_before_it_is_told(scene: Scene) -> None:
    async def work() -> None:
        scene.takes(LONG)
        raise KeyError

    with pytest.raises(KeyError):
        await Measured(work(), scene.dog, what)
    assert scene.dog.slow_turns == 1


async def test_work_that_is_cancelled_ends_as_it_would_and_that_step_is_told(scene: Scene) -> None:
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            scene.takes(LONG)
        return "cleaned up"

    task = asyncio.create_task(Measured(work(), scene.dog, what))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cleaned up"
    assert scene.dog.slow_turns == 1


async def test_slow_step_within_a_slow_step_is_told_once_by_the_inner_name(scene: Scene) -> None:
    async def work() -> None:
        scene.takes(LONG)

    async def outer() -> None:
        await Measured(work(), scene.dog, lambda: {"what": "inner"})

    await Measured(outer(), scene.dog, what)
    assert [told for told, _ in scene.told()] == ["inner"]


def test_all_tasks_of_a_loop_are_measured_and_named(scene: Scene) -> None:
    async def slow_work() -> None:
        await asyncio.sleep(0)
        scene.takes(LONG)

    async def main() -> None:
        measure_tasks(asyncio.get_running_loop(), scene.dog)
        await asyncio.wait_for(asyncio.create_task(slow_work()), 10)

    asyncio.run(main())
    ((told, _),) = scene.told()
    assert str(told).startswith("task ")
    assert "slow_work" in str(told)
