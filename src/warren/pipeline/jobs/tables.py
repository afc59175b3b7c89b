"""The tables that jobs read and write: directories of Parquet files, partitioned.

An archive is written by Spark's file sink, which lists the files that count in `_spark_metadata`.
`read_archive` reads only those, and not files that a killed run has left behind. Such a directory must not be
written to in any other way: `refuse_stream_table` guards that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.delta import files_of_table, is_delta
from warren.pipeline.jobs.lists import LISTS
from warren.pipeline.jobs.old_headers import with_present_headers
from warren.pipeline.session import TIMESTAMP_CONF
from warren.pipeline.source.schema import SCHEMA

ARCHIVE_PARTITIONS = ("vhost", "queue", "date")
NOTHING_THERE = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
ARCHIVE_SCHEMA = f"{SCHEMA}, date date"
"""The schema is given on reading, since Spark would take a queue named `7` for a number. Columns that an
archive of an earlier version lacks are null.
"""


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    if not exists(spark, path):
        raise PipelineError(f"there is no archive at {path}: see `warren pipeline archive --to`")
    reader = spark.read.schema(ARCHIVE_SCHEMA)
    if is_delta(path):
        found = reader.option("basePath", path).parquet(*files_of_table(Path(path)))
    else:
        found = reader.parquet(path)
    return with_present_headers(found)


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a directory or file at this path or URL, as Spark sees it."""
    try:
        spark.read.format("binaryFile").load(path).schema  # noqa: B018 - what it is does not matter
    except AnalysisException as error:
        if error.getCondition() in NOTHING_THERE:
            return False
        raise
    return True


def overwrite_partitions(frame: DataFrame, path: str, by: Sequence[str], *, rows_a_file: int = 0) -> None:
    """Replace the partitions for which the frame has rows; the others stay. `rows_a_file` limits the rows in
    a file; 0: no limit.
    """
    refuse_stream_table(frame.sparkSession, path)
    writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    with times_in_micros(frame.sparkSession):
        writer.option("maxRecordsPerFile", rows_a_file).partitionBy(*by).parquet(path)


@contextmanager
def times_in_micros(spark: SparkSession) -> Iterator[None]:
    """Have writes that begin in this context store times as TIMESTAMP_MICROS, also in a session that we did
    not open: it is a setting of the session, and no option of a writer.
    """
    before = {name: spark.conf.get(name) for name in TIMESTAMP_CONF}
    _set(spark, TIMESTAMP_CONF)
    try:
        yield
    finally:
        _set(spark, before)


def _set(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        assert value is not None, "it has a default"
        spark.conf.set(name, value)


def refuse_stream_table(spark: SparkSession, path: str) -> None:
    if has_sink_log(spark, path):
        raise PipelineError(
            f"--to {path} is an archive that a stream is written to: choose another directory"
        )


def has_table(spark: SparkSession, path: str) -> bool:
    """Whether there are Parquet files in the directory."""
    try:
        spark.read.parquet(path).schema  # noqa: B018 - what it is does not matter
    except AnalysisException as error:
        if error.getCondition() in NOTHING_THERE:
            return False
        raise
    return True


def has_sink_log(spark: SparkSession, path: str) -> bool:
    """Whether Spark's file sink has written to the directory, or was about to."""
    return exists(spark, f"{path.rstrip('/')}/{LISTS}")


def has_batches(spark: SparkSession, path: str) -> bool:
    """Whether Spark's file sink has listed a batch. A query makes the directory of lists before it makes its
    checkpoint, so one that was killed in its first moments leaves that empty.
    """
    return exists(spark, f"{path.rstrip('/')}/{LISTS}/*")


def check_checkpoint(spark: SparkSession, to: str, checkpoint: str, *, written: bool) -> None:
    """Refuse a table and a checkpoint that do not belong together. With a new checkpoint Spark counts batches
    from 0 again, and would skip those whose numbers the table has. `written`: the table has batches.
    """
    has_progress = exists(spark, f"{checkpoint.rstrip('/')}/commits/*")  # Spark keeps the last hundred
    if written and not exists(spark, f"{checkpoint.rstrip('/')}/offsets"):
        raise PipelineError(
            f"{to} was written with another checkpoint than {checkpoint}: name that one with --checkpoint, "
            "or choose a new directory with --to"
        )
    if has_progress and not written:
        raise PipelineError(
            f"the checkpoint {checkpoint} belongs to another directory than {to}, or what it wrote there is "
            f"lost (of an archive: {LISTS}): give --to and --checkpoint as they were, or restore it"
        )
