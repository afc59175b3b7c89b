"""Settings of Python's garbage collector for a process that is all broker, so that its runs stay short.

A run takes 0.3 µs for each object that it looks through, and all clients wait meanwhile. Most objects of a
broker live long, and those that end leave no cycles, so nearly all runs find nothing. They are needed for
cycles that other code leaves, such as the HTTP API, and those objects are young. So all objects that live
when the broker has started are frozen: the collector never looks at them again. So are the survivors of later
runs when there are many of them, as after 50,000 queues were declared. The price: a frozen object that
becomes part of a garbage cycle stays in memory.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

THRESHOLDS = (25_000, 3, 50)  # for `gc.set_threshold`
MIDDLE, OLD = 1, 2  # generations
OLD_OBJECTS_MAX = 100_000


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """For making very many objects that stay: the collector would look through all of them many times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def begin_process() -> None:
    """Stop the collector until the data directory is read (`tune_process`), after one last run: whatever is
    garbage by then would be frozen for good.
    """
    gc.collect()
    gc.disable()


def tune_process() -> None:
    """Freeze all objects that live now, and let the collector run again. There is no run before: with very
    many queues or bindings it would take a tenth of the start.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(set_aside_old)
    gc.enable()


def set_aside_new() -> None:
    """For work that makes very many objects that stay, in steps: freeze them now and then, so that no run
    looks through them. In a process that is not all broker this does nothing.
    """
    if set_aside_old in gc.callbacks:
        gc.freeze()


def set_aside_old(phase: str, info: dict[str, Any]) -> None:
    """A callback of the collector: when a run of the middle generation has ended, its survivors are old, and
    are frozen if there are many old objects.
    """
    if phase == "stop" and info["generation"] == MIDDLE and len(gc.get_objects(OLD)) > OLD_OBJECTS_MAX:
        gc.freeze()
