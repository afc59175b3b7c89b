"""How fast Spark reads a stream: rows a second of `count()` and of a write to nowhere, on local[2].

It makes a data directory with two streams of 200-byte bodies, one of them with headers, as a broker writes
them. Spark reads them as files, and through the HTTP API of a broker on that directory. For comparison, it
reads the same rows from Parquet files, and a pika consumer drains the same stream. Each figure is the best of
the rounds, after some to warm up: Java compiles what is hot, and is at its best after four or five. The
machine's load is printed with each figure, since other programs take their share of the two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
from pyspark.sql import DataFrame, SparkSession

import warren
from warren import commands
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.message import Message
from warren.pipeline.segments.files import FileLog
from warren.pipeline.session import open_session
from warren.storage.format import SEGMENT_MAGIC, encode_header, encode_record

PLAIN, HEADED = "plain", "with-headers"
BODY = (
    b'{"order":123456,"customer":"c-000123","lines":[{"sku":"A-1","count":2}],"note":"'.ljust(199, b".")
    + b"}"
)
SEGMENT_BYTES = 8 << 20
START_MS = 1_700_000_000_000
PREFETCH = 2_000
WARM_UP_ROUNDS = 4
STOP_SECONDS_MAX = 60


@dataclass(frozen=True)
class Figure:
    """Rows a second, by `count()` and by a write to nowhere."""

    name: str
    count: float
    noop: float

    def __str__(self) -> str:
        return f"{self.name:<34} {self.count:>12,.0f} {self.noop:>12,.0f}   load {os.getloadavg()[0]:.1f}"


# --- making the streams ---


def make_data(path: Path, messages: int) -> None:
    """A broker declares the streams; their segments are written without it, which is faster."""
    asyncio.run(_declare(path))
    log = FileLog(str(path))
    for name in (PLAIN, HEADED):
        directory = path / log.queue("/", name).place
        directory.mkdir(parents=True, exist_ok=True)
        _write_segments(directory, messages, headed=name == HEADED)


async def _declare(path: Path) -> None:
    async with warren.Broker(port=0, data_dir=path) as broker:
        for name in (PLAIN, HEADED):
            declare = commands.DeclareQueue(
                vhost="/", name=name, durable=True, arguments={"x-queue-type": "stream"}
            )
            broker.node.execute(declare)


def _write_segments(directory: Path, messages: int, *, headed: bool) -> None:
    for stale in directory.glob("*.seg"):
        stale.unlink()
    position = 1
    while position <= messages:
        with (directory / f"{position:020}.seg").open("wb") as file:
            file.write(encode_header(SEGMENT_MAGIC, position))
            while position <= messages and file.tell() < SEGMENT_BYTES:
                file.write(
                    encode_record(position, START_MS + position // 100, _message(position, headed=headed))
                )
                position += 1


def _message(position: int, *, headed: bool) -> Message:
    headers: Table | None = (
        {"tenant": f"t{position % 50}", "attempt": position % 3, "source": "web"} if headed else None
    )
    properties = BasicProperties(
        content_type="application/json", delivery_mode=2, message_id=f"m-{position:09}", headers=headers
    )
    return Message(b"\x06orders", b"\x0eorders.created", properties.encode(), BODY, True, START_MS)


# --- reading them ---


@contextlib.contextmanager
def broker(path: Path) -> Iterator[tuple[int, str]]:
    """Run a broker on the data directory; yields its port and the URL of its HTTP API."""
    command = [
        sys.executable,
        "-m",
        "warren",
        "serve",
        "--port",
        "0",
        "--http-port",
        "0",
        "--data-dir",
        str(path),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        yield int(words["amqp"].rpartition(":")[2]), f"http://{words['http']}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS_MAX)


def measure(name: str, rows: DataFrame, messages: int, rounds: int) -> Figure:
    rates: dict[str, float] = {}
    work: dict[str, Callable[[], object]] = {
        "count": rows.count,
        "noop": lambda: rows.write.format("noop").mode("overwrite").save(),
    }
    for turn in range(WARM_UP_ROUNDS + rounds):
        for what, run in work.items():
            started = time.perf_counter()
            run()
            rate = messages / (time.perf_counter() - started)
            rates[what] = max(rates.get(what, 0.0), rate) if turn >= WARM_UP_ROUNDS else 0.0
    figure = Figure(name, rates["count"], rates["noop"])
    print(figure, flush=True)
    return figure


def drain_with_pika(port: int, messages: int) -> None:
    """Read with one consumer from the first offset, as a program without Spark would."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    started = time.perf_counter()
    deliveries = channel.consume(PLAIN, arguments={"x-stream-offset": "first"})
    for seen, (method, _, _) in enumerate(deliveries, 1):
        if seen % (PREFETCH // 4) == 0 or seen == messages:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if seen == messages:
            break
    rate = messages / (time.perf_counter() - started)
    connection.close()
    print(
        f"{f'pika, one consumer, {messages:,}':<34} {rate:>12,.0f} {'':>12}   load {os.getloadavg()[0]:.1f}"
    )


def run(spark: SparkSession, directory: Path, arguments: argparse.Namespace) -> None:
    data, messages, rounds = directory / "data", arguments.messages, arguments.rounds
    make_data(data, messages)
    print(f"{messages:,} messages of {len(BODY)} bytes, rows/s      {'count()':>9} {'noop':>12}")

    def load(name: str, **options: str) -> DataFrame:
        return spark.read.format("warren").option("subscribe", name).options(**options).load()

    plain = load(PLAIN, path=str(data))
    measure("files", plain, messages, rounds)
    measure("files, with headers", load(HEADED, path=str(data)), messages, rounds)
    two = spark.read.schema("offset long, routing_key string").format("warren")
    chosen = two.options(subscribe=HEADED, path=str(data)).load()
    measure("files, with headers, two columns", chosen, messages, rounds)
    plain.write.parquet(str(directory / "parquet"))
    measure("Parquet, the same rows", spark.read.parquet(str(directory / "parquet")), messages, rounds)
    with broker(data) as (port, url):
        measure("HTTP", load(PLAIN, url=url), messages, rounds)
        measure("HTTP, with headers", load(HEADED, url=url), messages, rounds)
        drain_with_pika(port, min(messages, arguments.pika_messages))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pika-messages", type=int, default=200_000, help="how many pika drains")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warren-spark-read-") as directory:
        spark = open_session(app_name="spark_read", master="local[2]", conf={"spark.driver.memory": "2g"})
        try:
            run(spark, Path(directory), arguments)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
