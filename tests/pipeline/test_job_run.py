"""`warren pipeline run`: pipelines from files, in batch and as streams, with SQL and with a function."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.segments import DataDirectory, QueueDirectory, message
from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.jobs import run
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult

FUNCTION = """
from pyspark.sql import functions as F

def length(text):
    return len(text) + OFFSET

OFFSET = 100

def lengths(messages):
    measured = F.udf(length, "int")
    return messages.select("offset", measured(F.col("body").cast("string")).alias("length"))

def nothing(messages):
    return 5
"""


@pytest.fixture
def stream(tmp_path: Path) -> QueueDirectory:
    found = DataDirectory(tmp_path / "data").queue("s")
    found.append([message(b"x" * n, key="odd" if n % 2 else "even") for n in range(6)])
    return found


def carry_out(spark: SparkSession, tmp_path: Path, text: str) -> JobResult:
    (tmp_path / "functions.py").write_text(FUNCTION)
    file = tmp_path / "p.toml"
    source = f'[source]\npath = "{tmp_path / "data"}"\nsubscribe = "s"\nstartingOffsets = "earliest"\n'
    sink = f'[sink]\nformat = "parquet"\npath = "{tmp_path / "out"}"\n'
    file.write_text(text.replace("CHECKPOINT", f"checkpoint = '{tmp_path / 'c'}'") + source + sink)
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    options = parser.parse_args([str(file)])
    options.master, options.remote, options.conf = "local[*]", None, []
    run.check(options)
    return run.run(spark, options, ProgressLine(None))


def test_batch_with_sql(spark: SparkSession, stream: QueueDirectory, tmp_path: Path) -> None:
    sql = "[transform]\nsql = \"select offset, routing_key from messages where routing_key = 'odd'\"\n"
    assert carry_out(spark, tmp_path, sql).numbers["rows written"] == 3
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(tuple, rows)) == [(1, "odd"), (3, "odd"), (5, "odd")]


def test_stream_with_a_function_goes_on_where_it_was(
    spark: SparkSession, stream: QueueDirectory, tmp_path: Path
) -> None:
    text = "CHECKPOINT\n[trigger]\nonce = true\n[transform]\npython = 'functions.py:lengths'\n"
    assert carry_out(spark, tmp_path, text).numbers["messages read"] == 6
    stream.append([message(b"yy")])
    assert carry_out(spark, tmp_path, text).numbers["messages read"] == 1
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(tuple, rows)) == [*((n, 100 + n) for n in range(6)), (6, 102)]


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("[transform]\nsql = 'select nix from messages'\n", PipelineError, "p.toml: A column, variable,"),
        (
            "[transform]\npython = 'absent.py:f'\n",
            UsageError,
            "transform.python absent.py:f: FileNotFoundError: ",
        ),
        (
            "[transform]\npython = 'functions.py:f'\n",
            UsageError,
            "transform.python functions.py:f: AttributeError",
        ),
        (
            "[transform]\npython = 'functions.py:nothing'\n",
            PipelineError,
            "transform.python gave a int, not a",
        ),
    ],
)
def test_what_goes_wrong_is_one_line_with_the_file(
    spark: SparkSession, stream: QueueDirectory, tmp_path: Path, text: str, error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as caught:
        carry_out(spark, tmp_path, text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
