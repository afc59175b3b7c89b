"""Settings for the Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc
import sys

from pyspark import TaskContext

_imported = 0
"""How many modules were imported when `gc.freeze` was last called."""


def spare_collector() -> None:
    """Exempt imported modules from garbage collection. PySpark collects garbage after each task, which took
    half of a worker's time, measured on tasks of 32 MiB. Modules stay, so there is no garbage in them.
    """
    global _imported  # noqa: PLW0603 - of this process
    if TaskContext.get() is not None and len(sys.modules) > _imported:
        _imported = len(sys.modules)
        gc.freeze()
