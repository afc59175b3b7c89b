"""What is wrong with a read is said by `load()`, and with a write by `save()`, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.segments import DataDirectory

LINES_MAX = 2
"""Our sentence, and a line with Spark's own error code."""


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    directory = DataDirectory(tmp_path / "data")
    directory.queue("s").append(3)
    return directory


def told(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    text = str(caught.value)
    assert len(text.strip().splitlines()) <= LINES_MAX, text
    return text


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"starting_offsets": "latest"},
            "unknown option 'starting_offsets' to read: did you mean startingOffsets?",
        ),
        ({"routingKey": "k"}, "unknown option 'routingkey' to read: "),
        ({"startingOffsets": "first"}, "startingOffsets must be earliest, latest"),
        ({"subscribe": "x"}, "no queue 'x' in vhost '/': change the option subscribe, or vhost"),
        ({"path": "/nowhere"}, "/nowhere: no such directory: change the option path"),
    ],
)
def test_what_is_wrong_with_a_read_is_said_at_load(
    spark: SparkSession, data: DataDirectory, options: dict[str, str], sentence: str, *, streaming: bool
) -> None:
    reader = spark.readStream if streaming else spark.read
    given = {"path": str(data.path), "subscribe": "s"} | options
    assert sentence in told(reader.format("warren").options(**given).load)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"routing_key": "q"}, "unknown option 'routing_key' to write: did you mean routingKey?"),
        ({"window": "none"}, "option window is a whole number"),
        ({"amqp": "http://h"}, "option amqp: "),
        ({"subscribe": "q"}, "unknown option 'subscribe' to write: "),
        ({}, "cannot connect to 127.0.0.1:1: Connection refused: change the option amqp"),
    ],
)
def test_what_is_wrong_with_a_write_is_said_at_save(
    spark: SparkSession, options: dict[str, str], sentence: str
) -> None:
    frame = spark.createDataFrame([("a",)], "body string")
    given = {"amqp": "amqp://127.0.0.1:1", "exchange": ""} | options
    assert sentence in told(frame.write.format("warren").options(**given).mode("append").save)


def test_stream_is_written_with_a_checkpoint_among_its_options(spark: SparkSession, tmp_path: Path) -> None:
    """checkpointLocation is an option of Spark's, but Spark hands it to the sink as well."""
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("body string").json(str(tmp_path / "in"))
    writer = frame.writeStream.format("warren").option("amqp", "amqp://127.0.0.1:1").option("exchange", "")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
