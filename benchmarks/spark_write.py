"""How fast Spark writes: rows of a DataFrame a second, as messages that the broker has synced and confirmed.

It starts a broker with one durable queue; messages are persistent and mandatory. Compared are Spark on
local[2]; one of its tasks alone, from Arrow batches in memory; and the same rows published by pika, which
waits for each confirm, and by aio-pika, which has many in flight. Figures are the best of the rounds. The
first write of a session, in which Java and the workers start and warm up, is shown separately. The machine's
load is printed with each figure, since other programs take their share of the two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aio_pika
import pika
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from warren.amqp.methods import QueueDeclare, QueueDeclareOk, QueuePurge, QueuePurgeOk
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask
from warren.client.uri import Uri
from warren.pipeline.demo.broker import DemoBroker
from warren.pipeline.session import open_session
from warren.pipeline.sink.options import read_options
from warren.pipeline.sink.task import write_rows

QUEUE = "written"
BATCH_ROWS = 10_000
AIO_PIKA_IN_FLIGHT = 1_000
HEADERS = pa.map_(pa.string(), pa.string())
HEADERS_SQL = "map('shop', 'north', 'number', cast(id % 1000 as string)) as headers"


@dataclass(frozen=True)
class Target:
    """Where to write, and how much."""

    uri: Uri
    messages: int
    size: int  # of a body, in bytes
    rounds: int

    @property
    def amqp(self) -> str:
        return f"amqp://{self.uri.address}"

    def emptied(self) -> None:
        with ClientConnection(self.uri, product="benchmark") as connection:
            connection.talk(ask(QueueDeclare(queue=QUEUE, durable=True, arguments={}), QueueDeclareOk))
            connection.talk(ask(QueuePurge(queue=QUEUE), QueuePurgeOk))

    def rate(self, write: Callable[[], object], messages: int) -> float:
        self.emptied()
        began_s = time.perf_counter()
        write()
        return messages / (time.perf_counter() - began_s)

    def measure(self, name: str, write: Callable[[], object], messages: int = 0) -> None:
        count = messages or self.messages
        show(name, max(self.rate(write, count) for _ in range(self.rounds)))


def show(name: str, rate: float) -> None:
    print(f"{name:<44} {rate:>10,.0f}   load {os.getloadavg()[0]:.1f}", flush=True)


# --- Spark ---


def write_frame(frame: DataFrame, target: Target) -> None:
    frame.write.format("warren").option("amqp", target.amqp).option("exchange", "").mode("append").save()


def with_spark(spark: SparkSession, target: Target) -> None:
    body = f"cast(rpad(concat('order ', id), {target.size}, '.') as binary) as body"
    rows = spark.range(target.messages)
    plain = rows.selectExpr(body, f"'{QUEUE}' as routing_key")
    headed = rows.selectExpr(body, f"'{QUEUE}' as routing_key", HEADERS_SQL)
    first = target.rate(lambda: write_frame(plain, target), target.messages)
    show("Spark, the first write of a session", first)
    target.measure("Spark", lambda: write_frame(plain, target))
    target.measure("Spark, with headers", lambda: write_frame(headed, target))


# --- one task, without Spark ---


def batch(size: int, *, headers: bool) -> pa.RecordBatch:
    columns = {"body": [bytes(size)] * BATCH_ROWS, "routing_key": [QUEUE] * BATCH_ROWS}
    if headers:
        rows = [[("shop", "north"), ("number", str(row % 1000))] for row in range(BATCH_ROWS)]
        columns["headers"] = pa.array(rows, HEADERS)
    return pa.record_batch(columns)


def with_a_task(target: Target) -> None:
    options = read_options({"amqp": target.amqp, "exchange": ""})
    for name, headers in (("one task, without Spark", False), ("one task, with headers", True)):
        batches = [batch(target.size, headers=headers)] * (target.messages // BATCH_ROWS)
        rows = len(batches) * BATCH_ROWS
        target.measure(name, partial(write_rows, batches, options, "benchmark"), rows)


# --- other clients ---


def with_pika(target: Target, messages: int) -> None:
    body = bytes(target.size)

    def write() -> None:
        with pika.BlockingConnection(pika.URLParameters(target.amqp)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for row in range(messages):
                properties = pika.BasicProperties(delivery_mode=2, message_id=f"benchmark/{row}")
                channel.basic_publish("", QUEUE, body, properties, mandatory=True)

    target.measure(f"pika, {messages:,}, each confirm awaited", write, messages)


def with_aio_pika(target: Target, messages: int) -> None:
    async def write() -> None:
        async with await aio_pika.connect(target.amqp) as connection:
            exchange = (await connection.channel()).default_exchange
            for first in range(0, messages, AIO_PIKA_IN_FLIGHT):
                rows = range(first, min(first + AIO_PIKA_IN_FLIGHT, messages))
                await asyncio.gather(*(exchange.publish(made(row), QUEUE) for row in rows))

    def made(row: int) -> aio_pika.Message:
        persistent = aio_pika.DeliveryMode.PERSISTENT
        return aio_pika.Message(body, delivery_mode=persistent, message_id=f"benchmark/{row}")

    body = bytes(target.size)
    name = f"aio-pika, {messages:,}, {AIO_PIKA_IN_FLIGHT:,} in flight"
    target.measure(name, lambda: asyncio.run(write()), messages)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=200, metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client-messages", type=int, default=50_000, help="how many others write")
    options = parser.parse_args()
    spark = open_session(app_name="spark_write", master="local[2]", conf={"spark.driver.memory": "2g"})
    try:
        with tempfile.TemporaryDirectory() as place, DemoBroker(Path(place)) as broker:
            target = Target(broker.uri, options.messages, options.size, options.rounds)
            print(f"{options.messages:,} rows of {options.size} bytes, confirmed, a second")
            with_spark(spark, target)
            with_a_task(target)
            with_pika(target, options.client_messages)
            with_aio_pika(target, options.client_messages)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
