"""The same commands on Sparks that run elsewhere: a standalone master with two workers, and Spark Connect.

They share the jobs, since Spark is slow to start things; WARREN_CLUSTER_JOBS=all runs each on both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipeline import several_commands
from tests.pipeline.clusters import JAVA_OPTIONS, connect_server, standalone_master
from warren.cli.pipeline import WIDTH_MAX, load
from warren.client.uri import Uri
from warren.pipeline.demo.broker import DemoBroker
from warren.pipeline.demo.shop import DEAD_LETTERS, EXCHANGE, HISTORY, PAYMENTS, SHIPPING, open_shop, set_up
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.text import as_text

DRIVER = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
PLAN = json.dumps({
    "exchanges": [{"name": EXCHANGE, "type": "topic"}],
    "queues": [{"name": HISTORY}, {"name": "north"}],
    "bindings": [
        {"source": EXCHANGE, "destination": HISTORY, "routing_key": "order.paid.*"},
        {"source": EXCHANGE, "destination": "north", "routing_key": "order.*.north"},
    ],
})  # fmt: skip
SETTLE_SECONDS_MAX = 30


@dataclass(frozen=True)
class Shop:
    """A broker whose queues do not change any more."""

    broker: DemoBroker
    events: int

    def commands(self, place: Path, names: tuple[str, ...]) -> list[list[str]]:
        """Commands of jobs that read the stream, the dead letters or the archive."""
        (place / "plan.json").write_text(PLAN)
        live = ["--url", self.broker.url]
        history = [*live, "--queue", HISTORY]
        archive = str(place / "archive")
        amqp = f"amqp://{self.broker.uri.address}"
        commands = {
            "archive": [*history, "--once", "--to", archive],
            "compact": ["--archive", archive, "--to", str(place / "compact"), "--latest-per", "routing_key"],
            "dead-letters": [*live, "--queue", DEAD_LETTERS, "--to", str(place / "deaths")],
            "flow": [*history, "--once", "--to", str(place / "flow")],
            "replay": ["--archive", archive, "--where", "offset < 100", "--amqp", amqp,
                       "--exchange", "", "--routing-key", PAYMENTS],
            "what-if": [*history, "--topology", str(place / "plan.json")],
            "audit": [*history, "--archive", archive, "--contents"],
        }  # fmt: skip
        all_of_them = os.environ.get("WARREN_CLUSTER_JOBS") == "all"
        return [[name, *words] for name, words in commands.items() if all_of_them or name in names]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with DemoBroker(tmp_path_factory.mktemp("shop")) as broker:
        set_up(broker.uri)
        sales = open_shop(broker.uri, seconds=0.5)
        _wait_until_nothing_can_expire(broker.uri)
        yield Shop(broker, sales.events)


def _wait_until_nothing_can_expire(uri: Uri) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    connection = pika.BlockingConnection(pika.ConnectionParameters(uri.host, uri.port))
    with connection, connection.channel() as channel:
        while channel.queue_declare(SHIPPING, passive=True).method.message_count:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def run_here(spark: SparkSession, shop: Shop, place: Path, *names: str) -> list[str]:
    """The output of the commands on the Spark of the tests."""
    place.mkdir()
    return [_without(place, _run_here(spark, *words)) for words in shop.commands(place, names)]


def _run_here(spark: SparkSession, name: str, *words: str) -> str:
    job, parser = load(name), argparse.ArgumentParser()
    job.add_arguments(parser)
    return as_text(job.run(spark, parser.parse_args(words), ProgressLine(None)), width=WIDTH_MAX)


def _without(place: Path, text: str) -> str:
    """The output without the parts that say where and how a job was run."""
    return re.sub(r"\nThis run\n(  .*\n)+", "", text).replace(str(place), "DIR")


def run_there(shop: Shop, place: Path, where: list[str], *names: str) -> list[str]:
    commands = [[*words, *where, "--quiet"] for words in shop.commands(place, names)]
    program = [sys.executable, several_commands.__file__, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [status for status, _ in results] == [0] * len(commands), done.stderr
    return [_without(place, text) for _, text in results]


def check_archive(shop: Shop, archive: Path) -> None:
    """Every message of the stream is in the archive once, and its time is an instant to every reader."""
    table = pq.read_table(archive, columns=["offset", "timestamp"], partitioning=None)
    assert sorted(table.column("offset").to_pylist()) == list(range(shop.events))
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


@pytest.mark.timeout(400)
def test_jobs_do_the_same_on_a_standalone_master_with_two_workers(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    names = "archive", "dead-letters", "flow", "audit"
    conf = [word for name, value in DRIVER.items() for word in ("--conf", f"{name}={value}")]
    with standalone_master(tmp_path) as master:
        told = run_there(shop, tmp_path, ["--master", master, *conf], *names)
    assert told == run_here(spark, shop, tmp_path / "here", *names)
    check_archive(shop, tmp_path / "archive")


@pytest.mark.timeout(400)
def test_jobs_do_the_same_through_spark_connect(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    names = "archive", "compact", "replay", "what-if"
    with connect_server(tmp_path) as remote:
        told = run_there(shop, tmp_path, ["--remote", remote], *names)
    assert told == run_here(spark, shop, tmp_path / "here", *names)
    check_archive(shop, tmp_path / "archive")
