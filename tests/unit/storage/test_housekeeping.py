"""What is done in the background: a failure is told, and tried again where that makes sense."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from warren.storage.housekeeping import ATTEMPTS_MAX, Housekeeping

WAIT_SECONDS_MAX = 10


class Told:
    """What housekeeping has said."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, bool]] = []
        self.errors: list[Exception] = []
        self.housekeeping = Housekeeping(self.warn, self.errors.append)

    def warn(self, event: str, **fields: Any) -> None:
        self.warnings.append((event, fields["tried_again"]))

    def do(self, work: Callable[[], None]) -> None:
        self.housekeeping.do("cannot do it", "file", work)
        self.wait()

    def pass_time(self, ticks: int) -> None:
        for _ in range(ticks):
            self.housekeeping.try_again()
            self.wait()

    def wait(self) -> None:
        """Until all is done: work is done in order."""
        done = threading.Event()
        self.housekeeping.do("", "", done.set)
        assert done.wait(WAIT_SECONDS_MAX)


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    yield told
    told.housekeeping.stop()


class Work:
    """Fails so many times."""

    def __init__(self, error: Exception, failures: int) -> None:
        self.error = error
        self.failures = failures
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_mistake_of_ours_is_reported_and_not_tried_again(told: Told) -> None:
    error = ValueError("a mistake")
    work = Work(error, failures=1)
    told.do(work)
    told.pass_time(10)
    assert told.errors == [error]
    assert (work.calls, told.warnings) == (1, [])


@pytest.mark.parametrize("error", [full(), MemoryError()])
def test_what_fails_for_a_while_is_told_once_and_done_in_the_end(told: Told, error: Exception) -> None:
    work = Work(error, failures=3)
    told.do(work)
    told.pass_time(2 + 4 + 8)
    assert work.calls == 4
    assert told.warnings == [("cannot do it", True)]
    told.pass_time(100)
    assert (work.calls, told.errors) == (4, [])


def test_what_fails_for_good_is_given_up_and_that_is_told(told: Told) -> None:
    work = Work(full(), failures=10**9)
    told.do(work)
    told.pass_time(2 ** (ATTEMPTS_MAX + 1))
    assert work.calls == ATTEMPTS_MAX
    assert told.warnings == [("cannot do it", True), ("cannot do it", False)]


def test_directory_of_a_queue_has_another_name_before_anything_in_it_goes(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what is left of it, should this be interrupted, is known for what it is."""
    queue = tmp_path / "7"
    (queue / "priority-1").mkdir(parents=True)

    def interrupted(path: str) -> None:
        if Path(path).exists():
            raise full()

    with monkeypatch.context() as patch:
        patch.setattr("warren.storage.housekeeping.remove_tree", interrupted)
        told.housekeeping.remove_directories([str(queue)])
        told.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["7.deleted"]
    told.pass_time(2)
    assert list(tmp_path.iterdir()) == []
