"""What streaming queries cost on local[2]: on many small streams over a broker's HTTP API, and on a queue.

    idle      the broker's CPU, in percent of a core, while a query on one stream, and on all, waits for
              messages
    read      seconds for `count()` over all streams, each with few messages, over HTTP and from files
    latency   milliseconds from a publish to the row in `foreachBatch`, one message at a time
    consume   messages a second that a query takes from a durable queue with the option `consume`, counts in
              `foreachBatch`, and acks; without its first batch, in which Java and the workers warm up

Reads and rates of consuming are the best of the rounds, and reads have one more round to warm up; the latency
is the median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.process import BrokerProcess

from warren.pipeline.session import open_session

PATTERN = r"small\.\d+"
CONSUMED, BODY_BYTES = "consumed", 200
BATCH_SIZES = (10_000, 50_000)
"""For consuming: the default of `maxOffsetsPerTrigger`, and nearly as many as a channel may have unacked."""

SETTLE_SECONDS = 3.0
WAIT_SECONDS_MAX = 60.0
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def fill(channel: BlockingChannel, streams: int, messages: int) -> None:
    for number in range(streams):
        name = f"small.{number}"
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        for i in range(messages):
            channel.basic_publish("", name, b"%d" % i, pika.BasicProperties(delivery_mode=2))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


def start(spark: SparkSession, options: dict[str, str], see: Callable[[DataFrame], None]) -> StreamingQuery:
    rows = spark.readStream.format("warren").options(**options).load()
    query = rows.writeStream.foreachBatch(lambda batch, _: see(batch)).start()
    while not query.recentProgress and query.isActive:
        query.processAllAvailable()
    return query


def idle_share(spark: SparkSession, process: BrokerProcess, options: dict[str, str], seconds: float) -> float:
    query = start(spark, options, lambda _: None)
    try:
        time.sleep(SETTLE_SECONDS)
        before, began = cpu_seconds(process.process.pid), time.perf_counter()
        time.sleep(seconds)
        return 100 * (cpu_seconds(process.process.pid) - before) / (time.perf_counter() - began)
    finally:
        query.stop()


def read_seconds(rows: DataFrame, expected: int, rounds: int) -> float:
    best = float("inf")
    for turn in range(rounds + 1):
        began = time.perf_counter()
        found = rows.count()
        assert found == expected, found
        best = min(best, time.perf_counter() - began) if turn else best
    return best


def latencies_ms(
    spark: SparkSession, channel: BlockingChannel, options: dict[str, str], count: int
) -> list[float]:
    arrived = threading.Event()

    def see(batch: DataFrame) -> None:
        if batch.collect():
            arrived.set()

    query = start(spark, options, see)
    found = []
    try:
        for turn in range(count + 3):
            arrived.clear()
            sent = time.perf_counter()
            channel.basic_publish("", "small.0", b"now", pika.BasicProperties(delivery_mode=2))
            assert arrived.wait(WAIT_SECONDS_MAX), query.exception()
            if turn >= 3:
                found.append((time.perf_counter() - sent) * 1000)
            time.sleep(0.2 + 0.037 * (turn % 7))  # so that publishes hit any moment of the query's round
    finally:
        query.stop()
    return found


# --- consuming ---


def consumed_a_second(
    spark: SparkSession, process: BrokerProcess, channel: BlockingChannel, *, messages: int, batch_size: int
) -> float:
    channel.queue_declare(CONSUMED, durable=True)
    body = f"cast(rpad(cast(id as string), {BODY_BYTES}, '.') as binary) as body"
    rows = spark.range(messages).selectExpr(body, f"'{CONSUMED}' as routing_key")
    amqp = process.address.url()
    rows.write.format("warren").options(amqp=amqp, exchange="").mode("append").save()
    done: list[tuple[float, int]] = []

    def see(batch: DataFrame) -> None:
        found = batch.count()
        done.append((time.perf_counter(), found))

    source = spark.readStream.format("warren").options(
        consume="true", amqp=amqp, subscribe=CONSUMED, maxOffsetsPerTrigger=batch_size
    )
    query = (
        source.load().writeStream.trigger(availableNow=True).foreachBatch(lambda batch, _: see(batch)).start()
    )
    query.awaitTermination()
    (began, first), (ended, _) = done[0], done[-1]
    assert sum(found for _, found in done) == messages, done
    assert channel.queue_delete(CONSUMED).method.message_count == 0
    return (messages - first) / (ended - began)


# --- the four parts ---


@dataclass(frozen=True)
class Bench:
    """What all parts use. The streams are `small.0`, `small.1`…"""

    spark: SparkSession
    process: BrokerProcess
    channel: BlockingChannel
    given: argparse.Namespace

    @property
    def http(self) -> dict[str, str]:
        return {"url": self.process.http_url}


def read(bench: Bench) -> None:
    expected = bench.given.streams * bench.given.messages
    for name, options in (("HTTP", bench.http), ("files", {"path": str(bench.process.data_dir)})):
        rows = bench.spark.read.format("warren").options(**options, subscribePattern=PATTERN).load()
        print(f"read, {name}: {read_seconds(rows, expected, bench.given.rounds):.2f} s", flush=True)


def idle(bench: Bench) -> None:
    names = [f"small.{i}" for i in range(bench.given.streams)]
    cases = {
        "1 stream": {"subscribe": names[0]},
        f"{len(names)} streams": {"subscribe": ",".join(names)},
        "a pattern": {"subscribePattern": PATTERN},
    }
    for name, options in cases.items():
        share = idle_share(bench.spark, bench.process, bench.http | options, bench.given.seconds)
        print(f"idle, {name}: {share:.1f} % of a core", flush=True)


def latency(bench: Bench) -> None:
    options = bench.http | {"subscribe": "small.0"}
    found = latencies_ms(bench.spark, bench.channel, options, bench.given.latencies)
    print(f"latency: median {statistics.median(found):.0f} ms, worst {max(found):.0f} ms", flush=True)


def consume(bench: Bench) -> None:
    for size in BATCH_SIZES:
        rates = [
            consumed_a_second(
                bench.spark, bench.process, bench.channel, messages=bench.given.consumed, batch_size=size
            )
            for _ in range(bench.given.rounds)
        ]
        print(f"consume, {size:,} a batch: {max(rates):,.0f} a second", flush=True)


PARTS = {part.__name__: part for part in (read, idle, latency, consume)}


def run(given: argparse.Namespace, home: Path) -> None:
    spark = open_session(app_name="benchmark", master="local[2]")
    with BrokerProcess(home / "data") as process:
        address = pika.URLParameters(process.address.url())
        address.heartbeat = 0  # this connection is not served while a query runs
        connection = pika.BlockingConnection(address)
        channel = connection.channel()
        channel.confirm_delivery()
        fill(channel, given.streams, given.messages)
        for name in given.only:
            PARTS[name](Bench(spark, process, channel, given))
        connection.close()
    spark.stop()
    print(f"load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--messages", type=int, default=20, help="in each stream")
    parser.add_argument("--seconds", type=float, default=10.0, help="of idling that are measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latencies", type=int, default=20)
    parser.add_argument("--consumed", type=int, default=500_000, help="messages that are consumed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        run(given, Path(home))


if __name__ == "__main__":
    main()
