"""What many small streams cost, on local[2], over the HTTP API of a broker:

    idle      the CPU that the broker takes, in percent of a core, while a query on 1 and on all of the
              streams waits for messages
    read      seconds for `count()` over all streams, each with few messages, over HTTP and from files
    latency   milliseconds from a publish to the row in `foreachBatch`, one message at a time

Each read is the best of the rounds, after one to warm up; a latency is the median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.process import BrokerProcess

from warren.pipeline.session import open_session

PATTERN = r"small\.\d+"
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
            time.sleep(0.2 + 0.037 * (turn % 7))  # at any moment of the query's round
    finally:
        query.stop()
    return found


def run(streams: int, messages: int, seconds: float, rounds: int, count: int, home: Path) -> None:
    spark = open_session(app_name="benchmark", master="local[2]")
    with BrokerProcess(home / "data") as process:
        connection = pika.BlockingConnection(pika.URLParameters(process.address.url()))
        channel = connection.channel()
        channel.confirm_delivery()
        fill(channel, streams, messages)
        pattern = {"subscribePattern": PATTERN}
        http, files = {"url": process.http_url}, {"path": str(process.data_dir)}
        for name, options in (("HTTP", http), ("files", files)):
            rows = spark.read.format("warren").options(**options, **pattern).load()
            print(f"read, {name}: {read_seconds(rows, streams * messages, rounds):.2f} s", flush=True)
        every = {"subscribe": ",".join(f"small.{i}" for i in range(streams))}
        for name, options in (("1 stream", {"subscribe": "small.0"}), (f"{streams} streams", every),
                              ("a pattern", pattern)):  # fmt: skip
            share = idle_share(spark, process, http | options, seconds)
            print(f"idle, {name}: {share:.1f} % of a core", flush=True)
        found = latencies_ms(spark, channel, http | {"subscribe": "small.0"}, count)
        print(f"latency: median {statistics.median(found):.0f} ms, worst {max(found):.0f} ms", flush=True)
        connection.close()
    spark.stop()
    print(f"load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--messages", type=int, default=20, help="in each stream")
    parser.add_argument("--seconds", type=float, default=10.0, help="of idling that are measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latencies", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        run(given.streams, given.messages, given.seconds, given.rounds, given.latencies, Path(home))


if __name__ == "__main__":
    main()
