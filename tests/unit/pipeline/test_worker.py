"""`spare_collector` freezes imported modules in Spark's workers, and does nothing in other processes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from warren.pipeline.source import worker


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_imported", 0)
    yield
    gc.unfreeze()


def test_what_is_imported_is_frozen_once_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    worker.spare_collector()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
    worker.spare_collector()
    assert gc.get_freeze_count() == 0


def test_what_is_imported_later_is_frozen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    worker.spare_collector()
    gc.unfreeze()
    monkeypatch.setitem(sys.modules, "came.later", worker)
    worker.spare_collector()
    assert gc.get_freeze_count() > 0


def test_process_that_runs_no_task_is_left_alone() -> None:
    worker.spare_collector()
    assert gc.get_freeze_count() == 0
