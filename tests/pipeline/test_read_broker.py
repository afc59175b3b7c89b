"""Queues and streams of a real broker, filled by a real client, as Spark reads them: by path and by HTTP."""

from __future__ import annotations

import json
import math
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.process import BrokerProcess
from tests.support.segments import DataDirectory, message
from warren.amqp.properties import BasicProperties
from warren.amqp.table import (
    Float32,
    Int8,
    Int16,
    Int64,
    OldInt64,
    Table,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
)

SEGMENT_BYTES = 4096  # some 30 messages of these
STREAM = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": SEGMENT_BYTES}
TYPES = {
    "string": None, "empty": None, "void": None, "bool": "bool", "int8": "int8", "uint8": "uint8",
    "int16": "int16", "uint16": "uint16", "int32": "int32", "uint32": "uint32", "int64": "int64",
    "oldint64": "oldint64", "time": "timestamp", "float32": "float32", "float": "float", "nan": "float",
    "decimal": "decimal", "bytes": "bytes", "bytearray": "bytearray", "table": "table", "array": "array",
}  # fmt: skip


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
    channel.queue_declare(name, passive=True)  # its answer comes after the broker has handled the acks
    assert contents(load(spark, process, way, name)) == expected(range(40, 50))
    assert channel.queue_declare(name, passive=True).method.message_count == 10


def test_messages_that_were_read_are_written_back_as_they_were(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    """All columns that a read gives can be written, times among them, with headers of every type."""
    headers: Table = {
        "string": "5", "empty": "", "void": None, "bool": True, "int8": Int8(-1), "uint8": UInt8(255),
        "int16": Int16(-2), "uint16": UInt16(65535), "int32": -3, "uint32": UInt32(2**32 - 1),
        "int64": Int64(4), "oldint64": OldInt64(5), "time": Timestamp(1_700_000_000), "float": 0.1,
        "float32": Float32(0.1), "nan": math.nan, "decimal": Decimal("1.50"), "bytes": b"\xff",
        "bytearray": bytearray(b"\x00"), "array": [Int16(1), "x", [None], b"\xfe"],
        "table": {"!odd": {"n": Int64(1), "t": Timestamp(2), "void": None}},
    }  # fmt: skip
    given = BasicProperties(
        content_type="c", content_encoding="e", delivery_mode=1, priority=3, correlation_id="i", reply_to="r",
        expiration="60000000", message_id="m", timestamp=1_700_000_000, type="t", app_id="a", cluster_id="k",
        headers=headers, user_id="nobody",
    )  # fmt: skip
    data = DataDirectory(tmp_path / "data")
    data.queue("s").append(
        [message(b"\xff", given, key="back"), message(b"", BasicProperties(message_id="n"), key="back")]
    )
    rows = spark.read.format("warren").option("path", str(data.path)).option("subscribe", "s").load()
    channel.queue_declare("back", durable=True, arguments=STREAM)

    target = {"amqp": process.address.url(), "exchange": ""}
    rows.coalesce(1).write.format("warren").options(**target).mode("append").save()

    columns = [name for name in rows.columns if name not in {"queue", "stream_id", "timestamp", "user_id"}]
    found = load(spark, process, "http", "back").select(*columns).orderBy("offset").collect()
    assert found == rows.select(*columns).orderBy("offset").collect()
    assert found[0].published_at.timestamp() == 1_700_000_000
    assert found[0].headers.keys() == headers.keys()
    assert found[0].header_types == {name: kind for name, kind in TYPES.items() if kind is not None}
    assert (found[1].headers, found[1].header_types, found[1].published_at) == (None, None, None)


@pytest.mark.parametrize("way", ["files", "http"])
def test_stream_that_was_made_anew_is_told_by_its_identity(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, tmp_path: Path, way: str
) -> None:
    """The new stream has grown past the checkpoint's offset, so the offset alone would not show it."""
    name, out = f"anew-{way}", str(tmp_path / "out")

    def run(**options: str) -> None:
        where = {"path": str(process.data_dir)} if way == "files" else {"url": process.http_url}
        reader = spark.readStream.format("warren").option("subscribe", name).options(**where, **options)
        writer = reader.option("startingOffsets", "earliest").load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(out)
        query.awaitTermination()

    channel.queue_declare(name, durable=True, arguments=STREAM)
    publish(channel, name, range(50))
    run()
    channel.queue_delete(name)
    channel.queue_declare(name, durable=True, arguments=STREAM)
    publish(channel, name, range(80))
    with pytest.raises(
        StreamingQueryException, match=f"stream '{name}' was deleted and made anew.*failOnDataLoss"
    ):
        run()
    run(failOnDataLoss="false")
    publish(channel, name, range(80, 90))
    run()
    found = spark.read.parquet(out).groupBy("stream_id").count().collect()
    assert sorted(row["count"] for row in found) == [50, 90]
    assert contents(spark.read.parquet(out)) == sorted(expected(range(50)) + expected(range(90)))


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
            query.processAllAvailable()  # it ends when Spark has asked and there was nothing new
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
