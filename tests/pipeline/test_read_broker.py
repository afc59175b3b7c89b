"""Queues and streams of a real broker, filled by a real client, as Spark reads them: by path and by HTTP."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, SparkSession

from tests.support.process import BrokerProcess

SEGMENT_BYTES = 4096  # some 30 messages of these
STREAM = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": SEGMENT_BYTES}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    home = tmp_path_factory.mktemp("broker")
    (home / "warren.toml").write_text(f"segment_bytes = {SEGMENT_BYTES}\n")
    with BrokerProcess(home / "data", "--config", str(home / "warren.toml")) as made:
        yield made


@pytest.fixture
def channel(process: BrokerProcess) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(process.address.url()))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def publish(channel: BlockingChannel, queue: str, numbers: range) -> None:
    for i in numbers:
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"id-{i}", headers={"i": i})
        channel.basic_publish("", queue, f"m{i}".encode(), properties)


def load(spark: SparkSession, process: BrokerProcess, way: str, queue: str) -> DataFrame:
    reader = spark.read.format("warren").option("subscribe", queue)
    options = {"path": str(process.data_dir)} if way == "files" else {"url": process.http_url}
    return reader.options(**options).load()


def contents(rows: DataFrame) -> list[tuple[int, bytes, str, str]]:
    columns = rows.select("offset", "body", "message_id", "headers").collect()
    return sorted((row.offset, bytes(row.body), row.message_id, row.headers["i"]) for row in columns)


def expected(numbers: range) -> list[tuple[int, bytes, str, str]]:
    return [(i, b"m%d" % i, f"id-{i}", str(i)) for i in numbers]


@pytest.mark.parametrize("way", ["files", "http"])
def test_stream_that_fills_segments_is_read_whole(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, way: str
) -> None:
    channel.queue_declare(f"s-{way}", durable=True, arguments=STREAM)
    publish(channel, f"s-{way}", range(100))
    assert len(list(process.data_dir.glob("queues/*/*.seg"))) > 1
    assert contents(load(spark, process, way, f"s-{way}")) == expected(range(100))


@pytest.mark.parametrize("way", ["files", "http"])
def test_queue_is_read_without_what_is_acked_and_without_taking_anything(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, way: str
) -> None:
    name = f"q-{way}"
    channel.queue_declare(name, durable=True)
    publish(channel, name, range(50))
    for _ in range(40):
        method, _, _ = channel.basic_get(name)
        channel.basic_ack(method.delivery_tag)
    channel.queue_declare(name, passive=True)  # answered behind the acks
    assert contents(load(spark, process, way, name)) == expected(range(40, 50))
    assert channel.queue_declare(name, passive=True).method.message_count == 10


def test_query_that_waits_sees_what_comes_and_stops_when_told(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel
) -> None:
    channel.queue_declare("waits", durable=True, arguments=STREAM)
    rows = (
        spark.readStream.format("warren").option("url", process.http_url).option("subscribe", "waits").load()
    )
    query = rows.writeStream.format("memory").queryName("waits").start()
    try:
        for numbers in (range(3), range(3, 5)):
            query.processAllAvailable()  # which ends with a look that found nothing
            publish(channel, "waits", numbers)
        query.processAllAvailable()
        assert contents(spark.table("waits")) == expected(range(5))
    finally:
        query.stop()
    assert query.exception() is None


def test_streaming_query_goes_on_and_tells_the_broker_how_far_it_is(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    channel.queue_declare("grows", durable=True, arguments=STREAM)
    options = {
        "url": process.http_url,
        "subscribe": "grows",
        "startingOffsets": "earliest",
        "reference": "test",
    }
    for numbers in (range(60), range(60, 150)):
        publish(channel, "grows", numbers)
        query = (
            spark.readStream.format("warren")
            .options(**options, maxOffsetsPerTrigger="50")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
    assert contents(spark.read.parquet(str(tmp_path / "out"))) == expected(range(150))
    request = urllib.request.Request(f"{process.http_url}/api/streams/%2F/grows/offsets/test")  # noqa: S310
    request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own broker
        assert json.load(answer)["offset"] == 149
