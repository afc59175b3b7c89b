"""The same commands on Sparks that run elsewhere: a standalone master with two workers, and Spark Connect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.clusters import JAVA_OPTIONS, connect_server, standalone_master
from warren.pipeline.demo.broker import DemoBroker
from warren.pipeline.demo.shop import HISTORY, MAIL, Sales, open_shop, set_up

DRIVER = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


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


def archive_and_replay(shop: tuple[DemoBroker, Sales], archive: Path, *where: str) -> None:
    """Every message of the stream is in the archive once, and is confirmed on being replayed from there."""
    broker, sales = shop
    pipeline("archive", "--url", broker.url, "--queue", HISTORY, "--once", "--to", str(archive), *where)
    offsets = pq.read_table(archive, columns=["offset"], partitioning=None).column("offset").to_pylist()
    assert sorted(offsets) == list(range(sales.events))

    target = ["--amqp", f"amqp://{broker.uri.address}", "--exchange", "", "--routing-key", MAIL]
    told = pipeline("replay", "--archive", str(archive), "--where", "offset < 100", *target, *where)
    assert ["messages", "confirmed", "100"] in [line.split() for line in told.splitlines()]


@pytest.mark.timeout(400)
def test_commands_run_on_a_standalone_master_with_two_workers(
    shop: tuple[DemoBroker, Sales], tmp_path: Path
) -> None:
    conf = [word for name, value in DRIVER.items() for word in ("--conf", f"{name}={value}")]
    with standalone_master(tmp_path) as master:
        archive_and_replay(shop, tmp_path / "archive", "--master", master, *conf)


@pytest.mark.timeout(400)
def test_commands_run_through_spark_connect(shop: tuple[DemoBroker, Sales], tmp_path: Path) -> None:
    with connect_server(tmp_path) as remote:
        archive_and_replay(shop, tmp_path / "archive", "--remote", remote)
