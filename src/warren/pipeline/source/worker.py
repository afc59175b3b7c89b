"""What is particular about the Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc
import sys

from pyspark import TaskContext

_imported = 0
"""How many modules there were when the collector was last told to leave them alone."""


def spare_collector() -> None:
    """Spark collects garbage after each task of a worker, in all that was ever imported: half of the worker's
    time, measured on tasks of 32 MiB. What is imported stays, so there is nothing to be found in it.
    """
    global _imported  # noqa: PLW0603 - of this process
    if TaskContext.get() is not None and len(sys.modules) > _imported:
        _imported = len(sys.modules)
        gc.freeze()
