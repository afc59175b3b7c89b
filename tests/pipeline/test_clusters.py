"""The same commands on Sparks that run elsewhere: a standalone master with two workers, and Spark Connect."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.clusters import JAVA_OPTIONS, connect_server, standalone_master
from warren.cli.pipeline import WIDTH_MAX
from warren.pipeline.demo.broker import DemoBroker
from warren.pipeline.demo.shop import EXCHANGE, HISTORY, MAIL, Sales, open_shop, set_up
from warren.pipeline.jobs import audit, what_if
from warren.pipeline.report.progress import Progress
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


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DemoBroker, Sales]]:
    """A broker with a stream on which there is something."""
    with DemoBroker(tmp_path_factory.mktemp("shop")) as broker:
        set_up(broker.uri)
        yield broker, open_shop(broker.uri, seconds=0.5)


def pipeline(*words: str) -> str:
    command = [sys.executable, "-m", "warren", "pipeline", *words, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def archive_all(shop: tuple[DemoBroker, Sales], archive: Path, *where: str) -> None:
    """Every message of the stream is in the archive once."""
    broker, sales = shop
    pipeline("archive", "--url", broker.url, "--queue", HISTORY, "--once", "--to", str(archive), *where)
    offsets = pq.read_table(archive, columns=["offset"], partitioning=None).column("offset").to_pylist()
    assert sorted(offsets) == list(range(sales.events))


def here(spark: SparkSession, job: ModuleType, *words: str) -> str:
    """What the command shows if it is run on the Spark of the tests."""
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    return as_text(job.run(spark, parser.parse_args(words), Progress(None)), width=WIDTH_MAX)


@pytest.mark.timeout(400)
def test_commands_do_the_same_on_a_standalone_master_with_two_workers(
    spark: SparkSession, shop: tuple[DemoBroker, Sales], tmp_path: Path
) -> None:
    conf = [word for name, value in DRIVER.items() for word in ("--conf", f"{name}={value}")]
    words = ["--url", shop[0].url, "--queue", HISTORY, "--archive", str(tmp_path / "archive"), "--contents"]
    with standalone_master(tmp_path) as master:
        archive_all(shop, tmp_path / "archive", "--master", master, *conf)
        told = pipeline("audit", *words, "--master", master, *conf)
    assert told == here(spark, audit, *words)


@pytest.mark.timeout(400)
def test_commands_do_the_same_through_spark_connect(
    spark: SparkSession, shop: tuple[DemoBroker, Sales], tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_text(PLAN)
    words = ["--url", shop[0].url, "--queue", HISTORY, "--topology", str(tmp_path / "plan.json")]
    target = ["--amqp", f"amqp://{shop[0].uri.address}", "--exchange", "", "--routing-key", MAIL]
    with connect_server(tmp_path) as remote:
        archive_all(shop, tmp_path / "archive", "--remote", remote)
        told = pipeline("what-if", *words, "--remote", remote)
        replayed = pipeline(
            "replay", "--archive", str(tmp_path / "archive"), "--where", "offset < 100", *target,
            "--remote", remote,
        )  # fmt: skip
    assert told == here(spark, what_if, *words)
    assert ["messages", "confirmed", "100"] in [line.split() for line in replayed.splitlines()]
