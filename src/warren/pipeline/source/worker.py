"""What is particular about the Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def spare_collector() -> None:
    """Spark collects garbage after each task of a worker, in all that was ever imported: half of the worker's
    time, measured on tasks of 32 MiB. What is there before the first task is not looked at again.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
