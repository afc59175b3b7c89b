"""Python's garbage collector in a process that is all broker: it never has very much to look through.

A round of it takes 0.3 µs for each object that it looks through, and everybody waits. Most of what a broker
has lives long, and what has ended leaves no cycles, so nearly all rounds are for nothing. They are needed for
what others leave, as the HTTP API does, and that is garbage soon. So what lives when a broker has started is
set aside, and so are the survivors of later rounds when there are many, as after 50,000 queues were declared:
the collector does not look at them again. Should any of these be garbage in a cycle one day, they stay.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

THRESHOLDS = (25_000, 3, 50)
MIDDLE, OLD = 1, 2  # generations
OLD_OBJECTS_MAX = 100_000


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """While very many objects are made to stay: it would look through all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def begin_process() -> None:
    """Nothing is collected until all that there is has been read. What is garbage by now has to go before."""
    gc.collect()
    gc.disable()


def tune_process() -> None:
    """What lives now is set aside. It is not looked through: that would take a tenth of a start with very
    many queues or bindings.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(set_aside_old)
    gc.enable()


def set_aside_old(phase: str, info: dict[str, Any]) -> None:
    """When a round of the middle generation has ended: its survivors, and all before them, are old now."""
    if phase == "stop" and info["generation"] == MIDDLE and len(gc.get_objects(OLD)) > OLD_OBJECTS_MAX:
        gc.freeze()
