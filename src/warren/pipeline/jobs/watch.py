"""Says in a few words what Spark is busy with, for the progress line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from pyspark.sql import SparkSession

from warren.pipeline.report.progress import Watch

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo


def watch(spark: SparkSession, *, remote: bool) -> Watch:
    """With Spark Connect the server reports progress by itself; otherwise Spark is asked."""
    return _listen(spark) if remote else lambda: _ask(spark)


def _ask(spark: SparkSession) -> str:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    running = sum(stage.numActiveTasks for stage in known)
    return _words(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known), running)


def _listen(spark: SparkSession) -> Watch:
    latest = [""]

    def handle(
        stages: Iterable[StageInfo] | None,
        inflight_tasks: int,
        operation_id: str | None,  # noqa: ARG001 - Spark passes it by name
        done: bool,
    ) -> None:
        known = list(stages or ())
        finished = sum(stage.num_completed_tasks for stage in known)
        latest[0] = "" if done else _words(finished, sum(stage.num_tasks for stage in known), inflight_tasks)

    spark.registerProgressHandler(cast("ProgressHandler", handle))
    return lambda: latest[0]


def _words(finished: int, tasks: int, running: int) -> str:
    return f"{finished} of {tasks} tasks done, {running} running" if tasks else ""
