"""README's relay to Kafka, run as it stands there, but for the sink: Spark's connector to Kafka is no part of
PySpark, so what it would get goes to Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pyspark
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.support.process import BrokerProcess

README = Path(__file__).parents[2] / "README.md"
SNIPPET = re.compile(r"\*\*To Kafka and other worlds\*\*.*?```python\n(.*?)```", re.DOTALL)
SESSION = re.compile(r"^spark = .*\n", re.MULTILINE)
SINK = '.writeStream.format("kafka")'
OPTIONS = '.option("kafka.bootstrap.servers", "kafka:9092").option("topic", "orders")'
CHECKPOINT, URL = "/var/lib/orders-to-kafka", "http://127.0.0.1:15672"
END = ".start().awaitTermination()"


def changed(code: str, changes: dict[str, str]) -> str:
    """The snippet with other places in it. Each has to stand there once."""
    for before, after in changes.items():
        assert code.count(before) == 1, before
        code = code.replace(before, after)
    return code


@pytest.fixture
def snippet() -> str:
    found = SNIPPET.search(README.read_text())
    assert found is not None
    return SESSION.sub("", found[1])


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[BlockingChannel]:
    """With the stream `orders`."""
    with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind("orders", "amq.topic", "#")
        yield channel


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def places(broker: BrokerProcess, channel: BlockingChannel, tmp_path: Path) -> dict[str, str]:
    """Where the broker is, and the checkpoint."""
    del channel  # has declared the stream
    url = broker.http_url.replace("://", "://guest:guest@")
    return {URL: url, CHECKPOINT: str(tmp_path / "checkpoint")}


def test_every_row_reaches_the_sink_with_key_and_value(
    spark: SparkSession, snippet: str, places: dict[str, str], channel: BlockingChannel, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    sink = {SINK: '.writeStream.format("parquet")', OPTIONS: f".option('path', {out!r})", END: ".start()"}
    *before, last = changed(snippet, places | sink).strip().splitlines()
    names: dict[str, Any] = {"spark": spark}
    exec("\n".join([*before, f"query = {last}"]), names)  # noqa: S102 - what README says
    query = names["query"]
    try:
        query.processAllAvailable()  # from now on it reads
        for number in range(5):
            channel.basic_publish("amq.topic", f"k{number}", b"v%d" % number)
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(out).orderBy("key").collect()
    assert [(row.key, bytes(row.value)) for row in rows] == [(f"k{i}", b"v%d" % i) for i in range(5)]


def test_nothing_but_the_connector_is_missing(
    spark: SparkSession, snippet: str, places: dict[str, str]
) -> None:
    with pytest.raises(AnalysisException, match="Failed to find data source: kafka"):
        exec(changed(snippet, places), {"spark": spark})  # noqa: S102 - what README says


def test_connector_is_that_of_this_spark(spark: SparkSession) -> None:
    scala = str(spark._jvm.scala.util.Properties.versionNumberString())  # type: ignore[union-attr]
    short = ".".join(scala.split(".")[:2])
    assert f"spark-sql-kafka-0-10_{short}:{pyspark.__version__}" in README.read_text()
