"""Queues in readStream: acked when their batch is committed, back in the queue when it is not."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.pipeline import endless_query
from tests.pipeline.killing import Publishing, kill_at_random
from tests.support.process import BrokerProcess
from warren.pipeline.segments.errors import BadOption, Refused, Unreachable
from warren.pipeline.source import consuming
from warren.pipeline.source.consuming import QueueReader
from warren.pipeline.source.options import parse_consume_options

SOME_SECONDS = 60


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as made:
        yield made


@pytest.fixture
def channel(process: BrokerProcess) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(process.address.url())) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def queue(channel: BlockingChannel, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    channel.queue_declare(name, durable=True)
    return name


def publish(channel: BlockingChannel, queue: str, numbers: range) -> None:
    for i in numbers:
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"id-{i}", headers={"i": i})
        channel.basic_publish("", queue, b"m%d" % i, properties)


def ready(channel: BlockingChannel, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def reader_of(process: BrokerProcess, *queues: str, **more: str) -> QueueReader:
    options = {"consume": "true", "amqp": process.address.url(), "subscribe": ",".join(queues), **more}
    return QueueReader(parse_consume_options(options))


def look(reader: QueueReader, start: int, count: int) -> int:
    """Ask for the latest offset until `count` messages have come, which takes the broker a moment."""
    reader.patience.begin()
    end = start
    while end - start < count:
        end = reader.latestOffset({"consumed": start}, ReadAllAvailable())["consumed"]
    return end


def bodies(reader: QueueReader, start: int, end: int) -> list[tuple[int, bytes]]:
    parts: list[InputPartition] = list(reader.partitions({"consumed": start}, {"consumed": end}))
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(
        (offset, body)
        for batch in batches
        for offset, body in zip(batch["offset"].to_pylist(), batch["body"].to_pylist(), strict=True)
    )


# --- the reader, as Spark calls it ---


def test_messages_are_acked_when_spark_looks_on_behind_their_batch(
    process: BrokerProcess, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, range(5))
    for acked in (False, True):
        reader = reader_of(process, queue)
        try:
            end = look(reader, 0, 5)
            assert bodies(reader, 0, end) == [(i, b"m%d" % i) for i in range(5)]
            assert ready(channel, queue) == 0
            if acked:
                assert reader.latestOffset({"consumed": end}, ReadAllAvailable()) == {"consumed": end}
        finally:
            reader.stop()
        assert ready(channel, queue) == (0 if acked else 5)


def test_no_more_are_delivered_than_a_batch_may_have(
    process: BrokerProcess, channel: BlockingChannel, queue: str
) -> None:
    other = f"{queue}-2"
    channel.queue_declare(other, durable=True)
    publish(channel, queue, range(5))
    publish(channel, other, range(5))
    reader = reader_of(process, queue, other, maxOffsetsPerTrigger="4")
    try:
        assert look(reader, 0, 4) == 4
        assert ready(channel, queue) + ready(channel, other) == 6
        assert look(reader, 4, 4) == 8
        assert look(reader, 8, 2) == 10
    finally:
        reader.stop()


def test_no_more_bytes_are_held_than_asked_for_but_for_a_message(
    process: BrokerProcess, channel: BlockingChannel, queue: str
) -> None:
    for _ in range(20):
        channel.basic_publish("", queue, bytes(200_000))
    reader = reader_of(process, queue, maxBytesPerTrigger="500000")
    try:
        end, batches = 0, []
        while end < 20:
            start, end = end, look(reader, end, 1)
            batches.append(sum(len(body) for _, body in bodies(reader, start, end)))
        assert max(batches) <= 700_000
        assert sum(batches) == 4_000_000
    finally:
        reader.stop()


def test_batch_that_is_run_again_by_another_query_is_empty_and_its_messages_come_later(
    process: BrokerProcess, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, range(3))
    first = reader_of(process, queue)
    end = look(first, 0, 3)
    first.stop()  # before the batch was committed
    second = reader_of(process, queue)
    try:
        assert bodies(second, 0, end) == []
        later = look(second, end, 3)
        assert bodies(second, end, later) == [(i + 3, b"m%d" % i) for i in range(3)]
    finally:
        second.stop()


def test_broker_that_starts_again_delivers_again_what_was_not_acked(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as first:
        with pika.BlockingConnection(pika.URLParameters(first.address.url())) as connection:
            connection.channel().queue_declare("q", durable=True)
            publish(connection.channel(), "q", range(3))
        reader = reader_of(first, "q")
        end = look(reader, 0, 3)
        rows = bodies(reader, 0, end)
    with BrokerProcess(tmp_path / "data", "--port", str(first.address.port)):
        try:
            assert bodies(reader, 0, end) == rows  # a batch that is planned keeps its messages
            later = look(reader, end, 3)
            assert [body for _, body in bodies(reader, end, later)] == [b"m0", b"m1", b"m2"]
        finally:
            reader.stop()


def test_query_that_is_to_end_takes_what_was_there_when_it_began(
    process: BrokerProcess, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, range(5))
    reader = reader_of(process, queue, maxOffsetsPerTrigger="3")
    try:
        reader.prepareForTriggerAvailableNow()
        publish(channel, queue, range(5, 9))
        ends = [0]
        while len(ends) < 2 or ends[-1] != ends[-2]:
            ends.append(reader.latestOffset({"consumed": ends[-1]}, ReadAllAvailable())["consumed"])
        assert ends[-1] == 5
    finally:
        reader.stop()
    assert ready(channel, queue) == 4


def test_query_that_is_to_end_does_not_wait_for_what_others_have_taken(
    process: BrokerProcess, channel: BlockingChannel, queue: str
) -> None:
    publish(channel, queue, range(2))
    reader = reader_of(process, queue)
    try:
        reader.prepareForTriggerAvailableNow()
        reader.left = 3  # as if there had been a third, which another consumer took
        assert reader.latestOffset({"consumed": 0}, ReadAllAvailable()) == {"consumed": 2}
        assert reader.latestOffset({"consumed": 2}, ReadAllAvailable()) == {"consumed": 2}
    finally:
        reader.stop()


def test_queue_that_is_deleted_ends_the_query(
    process: BrokerProcess, channel: BlockingChannel, queue: str
) -> None:
    reader = reader_of(process, queue)
    reader.initialOffset()
    channel.queue_delete(queue)
    with pytest.raises(BadOption, match=f"queue '{queue}' was deleted: change the option subscribe"):
        look(reader, 0, 1)


def test_what_cannot_be_consumed_is_told_before_anything_is_read(
    process: BrokerProcess, channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "PAUSES_SECONDS", (0.0,))
    channel.queue_declare("a-stream", durable=True, arguments={"x-queue-type": "stream"})
    with pytest.raises(BadOption, match="a stream is read without the option consume"):
        reader_of(process, "a-stream").initialOffset()
    with pytest.raises(BadOption, match="no queue 'none' in vhost '/': change the option subscribe"):
        reader_of(process, "none").initialOffset()
    with pytest.raises(Refused, match="change the option amqp"):
        reader_of(process, "none", amqp=process.address.url().replace("guest:", "nobody:")).initialOffset()
    with pytest.raises(Unreachable, match="change the option amqp"):
        reader_of(process, "none", amqp="amqp://127.0.0.1:1").initialOffset()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"url": "http://h"}, "the option url cannot be given beside consume"),
        ({"startingOffsets": "earliest"}, "the option startingOffsets cannot be given beside consume"),
        ({"amqp": "http://h"}, "option amqp: not an amqp:// URI"),
        ({"amqp": None}, "to consume, option amqp must say where"),
    ],
)
def test_options_that_say_nothing_about_consuming_are_refused(
    changes: dict[str, str | None], told: str
) -> None:
    given = {"consume": "true", "amqp": "amqp://h", "subscribe": "q", **changes}
    with pytest.raises(BadOption, match=told):
        parse_consume_options({name: value for name, value in given.items() if value is not None})


# --- a real Spark ---


def test_query_consumes_a_queue_and_has_all_columns(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    channel.queue_declare("orders", durable=True)
    options = {"consume": "true", "amqp": process.address.url(), "subscribe": "orders"}
    for numbers in (range(40), range(40, 60)):
        publish(channel, "orders", numbers)
        query = endless_query.start(
            spark, str(tmp_path / "out"), options | {"maxOffsetsPerTrigger": "15"}, availableNow=True
        )
        query.awaitTermination()
        assert max(progress["numInputRows"] for progress in query.recentProgress) == 15
        assert ready(channel, "orders") == 0
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [(row.offset, bytes(row.body), row.message_id, row.headers["i"], row.queue) for row in rows] == [
        (i, b"m%d" % i, f"id-{i}", str(i), "orders") for i in range(60)
    ]


def test_queue_without_the_option_is_refused_with_it_named(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    options = {"url": process.http_url, "subscribe": queue}
    query = endless_query.start(spark, str(tmp_path / "out"), options)
    with pytest.raises(StreamingQueryException, match="to consume it, set consume to true"):
        query.awaitTermination(SOME_SECONDS)


@pytest.mark.timeout(400)
def test_driver_that_is_killed_loses_no_message(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "table"
    place.mkdir()
    with BrokerProcess(tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
            connection.channel().queue_declare("q", durable=True)
        options = {"consume": "true", "amqp": broker.address.url(), "subscribe": "q"}
        command = [sys.executable, "-m", endless_query.__name__, str(place), "maxOffsetsPerTrigger=50"]
        words = [f"{name}={value}" for name, value in options.items()]
        with Publishing(broker.address, "q") as published:
            for seed in range(2):
                kill_at_random([*command, *words], place, random.Random(seed), tmp_path / "driver.log")
        endless_query.start(spark, str(place), options, availableNow=True).awaitTermination()
        with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
            assert ready(connection.channel(), "q") == 0
    rows = spark.read.parquet(str(place)).select("body").collect()
    assert published.confirmed
    assert {bytes(row.body) for row in rows} == {b"%d" % i for i in range(published.confirmed)}
