"""replay, with a real Spark and a real broker."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession

from tests.pipeline.messages import START, message, table
from tests.support.process import Address
from warren.pipeline.errors import UsageError
from warren.pipeline.jobs import replay as job
from warren.pipeline.jobs.replay import replay
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.sink.options import WriteOptions, read_options

FAST_START = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def channel(broker: Address) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        yield connection.channel()


@pytest.fixture
def target(channel: BlockingChannel) -> Iterator[str]:
    """A deduplicating exchange, and a queue of the same name that is bound to it."""
    name = f"replay-{uuid.uuid4()}"
    channel.exchange_declare(
        name, "fanout", arguments={"x-message-deduplication": True, "x-cache-size": 1000}
    )
    channel.queue_declare(name)
    channel.queue_bind(name, name)
    yield name
    channel.queue_delete(name)
    channel.exchange_delete(name)


def options_to(broker: Address, exchange: str, **options: str) -> WriteOptions:
    return read_options({"amqp": broker.url(), "exchange": exchange, "deduplicate": "true"} | options)


def take_all(channel: BlockingChannel, queue: str) -> list[tuple[str, pika.BasicProperties, bytes]]:
    taken = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append((got[0].routing_key, got[1], got[2]))
    return taken


def test_replayed_message_keeps_what_it_carried_and_says_where_it_was_recorded(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str
) -> None:
    full = message(
        "a/b", 7, message_id="42", correlation_id="c", content_type="t", type="y", app_id="a", reply_to="r",
        content_encoding="e", priority=3, delivery_mode=1, expiration="60000000", user_id="u", body=b"\xff",
        published_at=START, cluster_id="k",
        headers={
            "n": "5", "s": "5", "x-death": '[{"count":1}]', "x-replayed-from": "8",
            "x-deduplication-header": "o",
        },
        header_types={"n": "int32", "x-death": "array", "x-replayed-from": "int8"},
    )  # fmt: skip
    replay(table(spark, [full, message("orders", 8)]), options_to(broker, target))

    (_, bare, _), (key, properties, body) = sorted(
        take_all(channel, target), key=lambda taken: str(taken[1].message_id)
    )
    assert (key, body, properties.message_id) == ("order.new", b"\xff", "42")
    assert properties.headers == {
        "n": 5,
        "s": "5",
        "x-death": [{"count": 1}],
        "x-replayed-from": "//a/b/7/p3",
        "x-deduplication-header": "//a/b/7/p3",
    }
    assert properties.timestamp == int(START.timestamp())
    kept = (
        "correlation_id", "content_type", "type", "app_id", "reply_to", "content_encoding", "priority",
        "cluster_id",
    )  # fmt: skip
    assert {name: getattr(properties, name) for name in kept} == {name: full[name] for name in kept}
    assert (properties.delivery_mode, properties.expiration, properties.user_id) == (1, "60000000", None)
    assert bare.message_id == "//orders/8"
    assert bare.headers == {"x-replayed-from": "//orders/8", "x-deduplication-header": "//orders/8"}


def test_replayed_message_gets_the_id_of_its_place_if_that_is_asked_for(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str
) -> None:
    replay(table(spark, [message("orders", 7, message_id="42")]), options_to(broker, target), new_ids=True)

    ((_, properties, _),) = take_all(channel, target)
    assert properties.message_id == "//orders/7"
    assert properties.headers == {
        "x-replayed-from": "//orders/7",
        "x-original-message-id": "42",
        "x-deduplication-header": "//orders/7",
    }


def test_condition_on_a_header_is_on_its_own_text(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str
) -> None:
    kinds = [message("orders", n, headers={"kind": "o" if n % 2 else "p"}) for n in range(10)]

    done = replay(table(spark, kinds), options_to(broker, target), where="headers['kind'] = 'o'")

    assert (done.published, done.skipped) == (5, 5)


def test_archive_of_an_earlier_version_is_replayed_as_it_was_written(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str, tmp_path: Path
) -> None:
    """Its headers are JSON, and it has no header_types. (pika drops the fraction of a float.)"""
    texts = {
        "string": '"a \\"b\\" é"', "digits": '"5"', "void": "null", "int": "5", "long": "5000000000",
        "bool": "true", "float": "2.0", "bytes": '{"!bytes":"ff00"}',
        "array": '[1,"x"]', "table": '{"a":{"b":null}}',
    }  # fmt: skip
    old = table(spark, [message("orders", n, headers=texts) for n in range(2)]).drop(
        "header_types", "published_at", "cluster_id", "stream_id"
    )
    new = table(
        spark, [message("orders", 2, headers={"quoted": '"as it is"', "n": "7"}, header_types={"n": "int8"})]
    )
    archive = str(tmp_path / "archive")
    for part in (old, new):
        dated = part.selectExpr("*", "date(timestamp) date")
        dated.write.mode("append").partitionBy("vhost", "queue", "date").parquet(archive)
    words = ["--archive", archive, "--amqp", broker.url(), "--exchange", target]

    job.run(
        spark, parse([*words, "--where", "headers['digits'] = '5' or headers['n'] = '7'"]), ProgressLine(None)
    )

    found = {p.message_id: p.headers for _, p, _ in take_all(channel, target)}
    for headers in found.values():
        del headers["x-replayed-from"], headers["x-deduplication-header"]
    was = {
        "string": 'a "b" é', "digits": "5", "void": None, "int": 5, "long": 5_000_000_000, "bool": True,
        "float": 2.0, "bytes": b"\xff\x00", "array": [1, "x"], "table": {"a": {"b": None}},
    }  # fmt: skip
    assert found == {"//orders/0": was, "//orders/1": was, "//orders/2": {"quoted": '"as it is"', "n": 7}}


def test_replay_that_is_run_twice_leaves_each_message_once(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str
) -> None:
    messages = table(spark, [message("orders", offset, body=b"%d" % offset) for offset in range(100)])

    halves = [replay(messages, options_to(broker, target), where=f"offset < {end}") for end in (50, 1000)]

    assert [(half.read, half.skipped, half.published, half.confirmed) for half in halves] == [
        (100, 50, 50, 50),
        (100, 0, 100, 100),
    ]
    assert sorted(int(body) for _, _, body in take_all(channel, target)) == list(range(100))


def test_result_says_by_queue_from_which_offset_to_which(
    spark: SparkSession, broker: Address, target: str
) -> None:
    recorded = [message(queue, offset) for queue in ("orders", "mail") for offset in range(10, 20)]

    done = replay(table(spark, recorded), options_to(broker, target), where="offset between 12 and 15")

    assert (done.read, done.skipped, done.published, done.failed) == (20, 12, 8, 0)
    assert [row[:5] for row in done.queues] == [["/", "mail", 4, 12, 15], ["/", "orders", 4, 12, 15]]


def test_message_that_no_queue_takes_is_counted_for_its_queue_and_kept(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str, tmp_path: Path
) -> None:
    messages = table(spark, [message("orders", 1), message("mail", 2, priority=1), message("mail", 3)])
    channel.queue_unbind(target, target)
    errors = str(tmp_path / "errors")

    done = replay(messages, options_to(broker, target, errors=errors), where="queue = 'mail'")

    assert (done.published, done.confirmed, done.failed) == (2, 0, 2)
    assert {row.message_id for row in spark.read.parquet(errors).collect()} == {"//mail/2/p1", "//mail/3"}


def test_at_a_rate_one_task_publishes_all_in_order(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str
) -> None:
    messages = table(spark, [message("orders", offset, body=b"%d" % offset) for offset in range(20)])

    replay(messages, options_to(broker, target, rate="1000"))

    assert [int(body) for _, _, body in take_all(channel, target)] == list(range(20))


def test_command_replays_an_archive_with_another_key_and_without_the_headers_of_brokers(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str, tmp_path: Path
) -> None:
    headers = {"n": "1", "x-death": "[]", "x-first-death-queue": "q"}
    archive = str(tmp_path / "archive")
    table(spark, [message("orders", offset, headers=headers) for offset in range(5)]).selectExpr(
        "*", "date(timestamp) date"
    ).write.partitionBy("vhost", "queue", "date").parquet(archive)
    words = ["--archive", archive, "--queue", "orders", "--from-offset", "2", "--amqp", broker.url()]
    words += ["--exchange", target, "--routing-key", "again", "--drop-headers"]

    result = job.run(spark, parse(words), ProgressLine(None))

    assert result.ok
    assert result.numbers == {
        "messages read": 3,
        "messages skipped": 0,
        "messages published": 3,
        "messages confirmed": 3,
        "messages that no queue took": 0,
    }
    taken = take_all(channel, target)
    assert {key for key, _, _ in taken} == {"again"}
    assert {json.dumps(sorted(set(p.headers) - {"x-deduplication-header"})) for _, p, _ in taken} == {
        '["n", "x-replayed-from"]'
    }


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    return parser.parse_args(words)


def test_condition_that_spark_does_not_understand_is_a_usage_error(
    spark: SparkSession, broker: Address
) -> None:
    messages = table(spark, [message("orders", 1)])

    for where in ("nonsense = 1", "offset >", "offset"):
        with pytest.raises(UsageError, match="--where") as caught:
            replay(messages, options_to(broker, "x"), where=where)
        assert "\n" not in str(caught.value)


def test_option_that_makes_no_sense_is_known_before_spark_starts() -> None:
    words = ["--path", "data", "--queue", "q", "--amqp", "http://host", "--exchange", ""]
    with pytest.raises(UsageError, match="--amqp: not an amqp"):
        job.check(parse(words))


def test_replay_that_is_killed_half_way_and_run_again_leaves_each_message_once(
    spark: SparkSession, broker: Address, channel: BlockingChannel, target: str, tmp_path: Path
) -> None:
    archive = str(tmp_path / "archive")
    messages = [message("orders", offset, body=b"%d" % offset) for offset in range(400)]
    table(spark, messages).selectExpr("*", "date(timestamp) date").write.partitionBy(
        "vhost", "queue", "date"
    ).parquet(archive)
    words = ["--archive", archive, "--amqp", broker.url(), "--exchange", target]
    command = [sys.executable, "-m", "warren", "pipeline", "replay", *words, "--rate", "100"]
    driver = subprocess.Popen(
        [*command, "--master", "local[1]", "--conf", FAST_START],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while driver.poll() is None and count(channel, target) < 150:
            channel.connection.sleep(0.05)
        assert driver.poll() is None, "it was over before it could be killed"
    finally:
        driver.kill()
        driver.wait()

    result = job.run(spark, parse([*words, "--queue", "orders"]), ProgressLine(None))

    assert result.numbers["messages confirmed"] == 400
    assert sorted(int(body) for _, _, body in take_all(channel, target)) == list(range(400))


def count(channel: BlockingChannel, queue: str) -> int:
    ready: int = channel.queue_declare(queue, passive=True).method.message_count
    return ready
