"""`write.format("warren")` and `writeStream`, with a real Spark and a real broker."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, SparkSession

from tests.support.process import Address
from warren.pipeline.failures import in_one_line


@pytest.fixture
def channel(broker: Address) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        yield connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    name = f"written-{uuid.uuid4()}"
    channel.queue_declare(name)
    yield name
    channel.queue_delete(name)


def take_all(channel: BlockingChannel, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
    taken = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append((got[1], got[2]))
    return taken


def save(frame: DataFrame, broker: Address, mode: str = "append", **options: str) -> None:
    given = {"amqp": broker.url(), "exchange": ""} | options
    frame.write.format("warren").mode(mode).options(**given).save()


def failure_of(frame: DataFrame, broker: Address, mode: str = "append", **options: str) -> str:
    with pytest.raises(Exception) as caught:
        save(frame, broker, mode, **options)
    return in_one_line(caught.value)


def test_rows_of_all_partitions_arrive_as_messages_with_their_properties_and_stable_ids(
    spark: SparkSession, broker: Address, channel: BlockingChannel, queue: str
) -> None:
    frame = spark.range(0, 200, numPartitions=2).selectExpr(
        "cast(id as string) body",
        f"'{queue}' routing_key",
        "'text/plain' content_type",
        "map('number', cast(id as string), 'shop', 'north') headers",
        "map('number', 'int64') header_types",
    )

    save(frame, broker)

    taken = take_all(channel, queue)
    assert sorted(int(body) for _, body in taken) == list(range(200))
    for properties, body in taken:
        assert properties.headers == {"number": int(body), "shop": "north"}
        assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
    ids = sorted(properties.message_id.partition("/") for properties, _ in taken)
    assert len({job for job, _, _ in ids}) == 1
    assert {rest for _, _, rest in ids} == {f"{part}/{row}" for part in range(2) for row in range(100)}


def test_streaming_write_carries_query_and_batch_in_its_ids(
    spark: SparkSession, broker: Address, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.txt").write_text(f"row {number}\n")
    lines = (
        spark.readStream.option("maxFilesPerTrigger", 1).text(str(source)).withColumnRenamed("value", "body")
    )

    writer = lines.writeStream.format("warren").options(amqp=broker.url(), exchange="", routingKey=queue)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    query.awaitTermination()

    assert query.exception() is None
    taken = take_all(channel, queue)
    assert {properties.message_id for properties, _ in taken} == {
        f"{query.id}/{batch}/0/0" for batch in (0, 1)
    }
    assert sorted(body for _, body in taken) == [b"row 0", b"row 1"]


def test_message_that_comes_again_is_dropped_by_a_queue_that_deduplicates(
    spark: SparkSession, broker: Address, channel: BlockingChannel
) -> None:
    name = f"written-{uuid.uuid4()}"
    channel.queue_declare(name, arguments={"x-message-deduplication": True})
    frame = spark.sql(f"select 'x' body, '{name}' routing_key, 'the one' message_id")

    for _ in range(2):
        save(frame, broker, deduplicate="true")

    assert [properties.message_id for properties, _ in take_all(channel, name)] == ["the one"]
    channel.queue_delete(name)


def test_rows_that_no_queue_takes_are_a_table_beside_if_the_option_says_where(
    spark: SparkSession, broker: Address, queue: str, tmp_path: Path
) -> None:
    errors = str(tmp_path / "errors")
    frame = spark.range(4).selectExpr("'x' body", f"if(id < 2, '{queue}', 'nowhere') routing_key")

    save(frame.coalesce(1), broker, errors=errors)

    table = spark.read.parquet(errors)
    assert table.columns == ["vhost", "exchange", "routing_key", "message_id", "reason", "body"]
    rows = [(row.routing_key, row.message_id.split("/")[1:], row.reason) for row in table.collect()]
    assert rows == [("nowhere", ["0", row], "312 NO_ROUTE") for row in ("2", "3")]


@pytest.mark.parametrize(
    ("columns", "options", "mode", "text"),
    [
        (
            "'x' body",
            {"routingKey": "nowhere"},
            "append",
            r"routing key 'nowhere': 312 NO_ROUTE.*[Oo]ption errors",
        ),
        ("'x' body", {"exchange": "missing"}, "append", r"404 NOT_FOUND - no exchange 'missing'.*0 of the 1"),
        ("'x' body", {"amqp": "amqp://127.0.0.1:1"}, "append", r"cannot connect to 127\.0\.0\.1:1"),
        ("'x' body", {"window": "none"}, "append", "option window"),
        ("'x' body", {}, "overwrite", "mode append"),
        ("'x' text", {}, "append", "column body"),
        ("1 body", {}, "append", "column body cannot be of type int"),
        ("'x' body, 'k' routingkey", {}, "append", "column routingkey means nothing to a write"),
    ],
)
def test_what_cannot_be_written_is_one_line_that_names_what_to_change(
    spark: SparkSession, broker: Address, columns: str, options: dict[str, str], mode: str, text: str
) -> None:
    told = failure_of(spark.sql(f"select {columns}"), broker, mode, **options)

    assert re.search(text, told), told
    assert "\n" not in told
