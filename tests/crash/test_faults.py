"""A disk that fails at every write and every sync in turn, and power that is cut at every moment.

One scenario is run over and over. A failure names the operation, and the seed where there is one:

    FAULTS_OPERATION=17 pytest tests/crash/test_faults.py        only this one
    FAULTS_SEEDS=100 pytest tests/crash/test_faults.py           more kinds of loss at each moment
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.crash.scenario import Scenario
from tests.support.faulty_disk import write_tree
from tests.support.machine import Machine, small_limits

MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
SEEDS = int(os.environ.get("FAULTS_SEEDS", "4"))
ONLY = os.environ.get("FAULTS_OPERATION")


@pytest.fixture(autouse=True)
def _small_limits() -> Iterator[None]:
    with small_limits():
        yield


@contextmanager
def scratch_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


@contextmanager
def new_scenario() -> Iterator[Scenario]:
    with scratch_directory() as path:
        machine = Machine(path)
        machine.faults.done.clear()
        try:
            yield Scenario(machine)
        finally:
            machine.faults.before = None
            machine.close()


def operations() -> list[str]:
    """All that the disk is asked to do if nothing fails."""
    with new_scenario() as scenario:
        scenario.run()
        return list(scenario.machine.faults.done)


def numbers(done: list[str]) -> list[int]:
    return [int(ONLY)] if ONLY else list(range(len(done)))


def check_power_cut(scenario: Scenario, seed: int) -> None:
    """Whatever is lost now of what was not synced, all that was promised is there."""
    machine = scenario.machine
    scenario.look()
    tree = machine.platter.crashed(Random(seed))
    with scratch_directory() as path:
        write_tree(path / "data", tree)
        (path / "boot_id").write_text("after the power cut\n")
        left = Machine(path, boot_id=path / "boot_id")
        try:
            scenario.check_left(left, power_lost=True)
        finally:
            left.close()


def check_kill(scenario: Scenario) -> None:
    """What a process leaves that ends now, and what another one makes of that, has all that was promised."""
    scenario.look()
    with scratch_directory() as path:
        shutil.copytree(scenario.machine.data, path / "data")
        left = Machine(path, boot_id=scenario.machine.boot_id)
        try:
            scenario.check_left(left, power_lost=False)
        finally:
            left.close()


def test_the_scenario_uses_all_that_can_fail() -> None:
    done = operations()
    kinds = {operation.rpartition(" ")[0] for operation in done}
    assert kinds == {
        "create",
        "delete directory",
        "delete segment",
        "let go of ack file",
        "make directory",
        "make the journal",
        "rename",
        "sync",
        "sync all",
        "sync names",
        "sync segments",
        "write",
        "write ack file anew",
        "write index",
        "write safely",
    }
    written = {operation.rpartition(".")[2] for operation in done if operation.startswith("write ")}
    assert written >= {"seg", "acks", "new", "log", "json"}


@pytest.mark.parametrize(
    ("error", "times"),
    [(errno.ENOSPC, 1), (errno.EIO, 1), (errno.ENOSPC, 4)],
    ids=["full once", "broken once", "full for a while"],
)
def test_whatever_fails_nothing_is_lost_and_all_goes_on_by_itself(error: int, times: int) -> None:
    done = operations()
    for number in numbers(done):
        with new_scenario() as scenario:
            faults = scenario.machine.faults
            faults.fail(at=number, error=error, times=times)
            try:
                run_and_crash_at_failure(scenario)
            except Exception as problem:
                problem.add_note(f"FAULTS_OPERATION={number}: {done[number]}")
                raise
            assert 1 <= faults.failed <= times


def run_and_crash_at_failure(scenario: Scenario) -> None:
    """See what would be left if it ended just after the first failure; but it does not."""
    faults = scenario.machine.faults

    def look_after_failure() -> None:
        if faults.failed:
            faults.before = None
            check_power_cut(scenario, 1)
            check_kill(scenario)

    faults.before = look_after_failure
    scenario.run()
    assert scenario.was_alarmed is scenario.was_failing
    assert not scenario.machine.node.alarms
    check_kill(scenario)
    check_power_cut(scenario, 0)


def test_whenever_the_power_is_cut_all_that_was_promised_is_there() -> None:
    with new_scenario() as scenario:
        faults = scenario.machine.faults

        def cut() -> None:
            number = len(faults.done)
            if ONLY is not None and number != int(ONLY):
                return
            for seed in range(SEEDS):
                try:
                    check_power_cut(scenario, seed)
                except Exception as problem:
                    problem.add_note(f"FAULTS_OPERATION={number}, seed {seed}")
                    raise

        faults.before = cut
        scenario.run()
        cut()


def test_whenever_the_process_ends_all_that_was_promised_is_there() -> None:
    with new_scenario() as scenario:
        scenario.machine.faults.before = lambda: check_kill(scenario)
        scenario.run()
        check_kill(scenario)
