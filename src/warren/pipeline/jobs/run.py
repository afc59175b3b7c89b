"""run: runs a pipeline that a file describes, so that users need not write the same thirty lines around their
SQL. `pipeline_file.py` says what the file may contain.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from pyspark import cloudpickle
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.failures import in_one_line
from warren.pipeline.jobs.pipeline_file import Pipeline, read_pipeline
from warren.pipeline.jobs.queries import follow, stop_on_signals
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult

ABOUT = "run a pipeline that a TOML file describes: source, SQL or a Python function, sink, trigger"
VIEW = "messages"
MASTER_DEFAULT = "local[*]"

Transform: TypeAlias = Callable[[DataFrame], DataFrame]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the pipeline; README shows one")


def check(options: argparse.Namespace) -> None:
    """Read the file, and take its settings for Spark: they override defaults, and the command line overrides
    them.
    """
    pipeline = read_pipeline(options.file, os.environ)
    _function(pipeline, options.file)
    if options.remote is None and options.master == MASTER_DEFAULT:
        options.master, options.remote = pipeline.master or options.master, pipeline.remote
    options.conf = [*pipeline.conf.items(), *options.conf]


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    pipeline = read_pipeline(options.file, os.environ)
    result = JobResult(title=pipeline.name)
    try:
        messages = _read(spark, pipeline)
        written = _transformed(spark, messages, pipeline, options.file)
        if pipeline.trigger is None:
            _write(written, pipeline, result, progress)
        else:
            _follow(written, pipeline, result, progress)
    except PipelineError:
        raise
    except Exception as error:  # Spark raises anything
        raise PipelineError(f"{options.file}: {in_one_line(error)}") from error
    return result


def _read(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    source = pipeline.source
    if pipeline.trigger is None:
        return spark.read.format(source.format).options(**source.options).load()
    return spark.readStream.format(source.format).options(**source.options).load()


def _transformed(spark: SparkSession, messages: DataFrame, pipeline: Pipeline, file: Path) -> DataFrame:
    if pipeline.sql is not None:
        messages.createOrReplaceTempView(VIEW)
        return spark.sql(pipeline.sql)
    function = _function(pipeline, file)
    if function is None:
        return messages
    found = function(messages)
    if not isinstance(found, DataFrame):
        raise PipelineError(f"{file}: transform.python gave a {type(found).__name__}, not a DataFrame")
    return found


def _function(pipeline: Pipeline, file: Path) -> Transform | None:
    """The pipeline's Python function, from a module or from a file beside the pipeline's. A file's code is
    sent to Spark's workers together with the work, since they may not have the file.
    """
    if pipeline.python is None:
        return None
    module_name, name = pipeline.python
    try:
        if module_name.endswith(".py"):
            module = _load(file.parent / module_name)
        else:
            module = importlib.import_module(module_name)
        function: Transform = getattr(module, name)
    except Exception as error:  # the user's code may raise anything
        raise UsageError(
            f"{file}: transform.python {module_name}:{name}: {type(error).__name__}: {error}"
        ) from error
    return function


def _load(path: Path) -> object:
    name = f"warren_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "it ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _write(frame: DataFrame, pipeline: Pipeline, result: JobResult, progress: ProgressLine) -> None:
    counted = Observation("written")
    sink = pipeline.sink
    writer = frame.observe(counted, sf.count(sf.lit(1)).alias("rows")).write.format(sink.format)
    writer = writer.options(**sink.options).mode(sink.mode)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    with progress.step("writing"):
        writer.save()
    result.numbers["rows written"] = counted.get["rows"]


def _follow(frame: DataFrame, pipeline: Pipeline, result: JobResult, progress: ProgressLine) -> None:
    sink, trigger = pipeline.sink, pipeline.trigger
    assert trigger is not None
    writer = frame.writeStream.format(sink.format).queryName(pipeline.name).outputMode(sink.mode)
    writer = writer.options(**sink.options).option("checkpointLocation", pipeline.checkpoint)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    writer = (
        writer.trigger(availableNow=True) if trigger.once else writer.trigger(processingTime=trigger.every)
    )
    with stop_on_signals() as stop:
        summary = follow(writer.start(), progress, stop)
    result.numbers |= {"messages read": summary.rows, "batches": summary.batches}
    result.tables.append(summary.table())
    if summary.history:
        result.plots.append(summary.plot())
