"""Each message is read once, or reported as lost: with drivers that are killed, and retention that overtakes.

WARREN_DRIVER_KILLS=20    how many kills, for a longer campaign
WARREN_DRIVER_SEED=…      repeats the random moments of the kills of an earlier run
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pika
import pytest
from pyspark.sql import SparkSession

from tests.pipeline import endless_query
from tests.pipeline.conftest import CONF
from tests.pipeline.killing import START_SECONDS_MAX, Publishing, Reading, kill_at_random, kill_when
from tests.support.process import BrokerProcess
from tests.support.segments import DataDirectory
from warren.pipeline.errors import PipelineError
from warren.pipeline.failures import for_the_command
from warren.pipeline.jobs import archive
from warren.pipeline.jobs.lists import FILES, current_lists, places_in
from warren.pipeline.jobs.lock import only_one
from warren.pipeline.jobs.tables import read_archive
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.segments.http import HttpLog

KILLS = int(os.environ.get("WARREN_DRIVER_KILLS", "2"))
SEED = os.environ.get("WARREN_DRIVER_SEED") or str(random.SystemRandom().randrange(1 << 32))
SEGMENT_BYTES = 16_384  # some 250 of these messages
BATCH = "500"
CONF_WORDS = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
LIST_EVERY = "spark.sql.streaming.fileSink.log.compactInterval"
MERGING = ["--roll-every", "1", "--conf", f"{LIST_EVERY}=2"]
"""Files can be merged every second, since Spark makes a whole list with every second batch."""

STREAM = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": SEGMENT_BYTES}


@contextmanager
def broker_with_streams(path: Path, **streams: dict[str, object]) -> Iterator[BrokerProcess]:
    """A broker with these streams: each has the arguments in STREAM, and those given for it."""
    with BrokerProcess(path / "data") as process:
        with pika.BlockingConnection(pika.URLParameters(process.address.url())) as connection:
            for name, arguments in streams.items():
                connection.channel().queue_declare(name, durable=True, arguments=STREAM | arguments)
        yield process


def kill_often(command: list[str], place: Path, path: Path) -> None:
    chance = random.Random(SEED)
    place.mkdir()
    for number in range(KILLS):
        when = kill_at_random(command, place, chance, path / "driver.log")
        print(f"kill {number} of seed {SEED}: {when}")  # noqa: T201 - pytest shows it if it fails


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    archive.add_arguments(parser)
    return parser.parse_args(words)


def check_each_once(found: list[tuple[int, bytes]], confirmed: int) -> None:
    assert confirmed
    assert sorted(found) == [(number, b"%d" % number) for number in range(confirmed)]


@pytest.mark.timeout(100 + 100 * KILLS)
def test_archive_that_is_killed_again_and_again_while_files_are_merged_has_each_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    with broker_with_streams(tmp_path, s={}) as broker:
        words = ["--path", str(broker.data_dir), "--queue", "s", "--to", str(place)]
        command = [sys.executable, "-m", "warren", "pipeline", "archive", *words, "--every", "1", "--quiet"]
        with Publishing(broker.address, "s") as published, Reading(place) as reading:
            command += ["--batch", BATCH, "--master", "local[2]", *MERGING, *CONF_WORDS]
            kill_often(command, place, tmp_path)
        result = archive.run(spark, parsed(*words, "--once"), ProgressLine(None))

        assert not reading.wrong
        assert result.numbers["offsets without a message"] == 0
        assert len(list(broker.data_dir.glob("queues/*/*.seg"))) > 1
    rows = read_archive(spark, str(place)).select("offset", "body").collect()
    check_each_once([(row.offset, bytes(row.body)) for row in rows], published.confirmed)
    listed = places_in(current_lists(place))
    assert {file.relative_to(place).as_posix() for file in place.glob(FILES)} == listed


@pytest.mark.timeout(600)
def test_compact_in_place_that_is_killed_at_each_stage_leaves_each_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    stream = DataDirectory(tmp_path / "data").queue("s")
    stream.append(60)
    wanted = list(range(60))
    words = ["--path", str(tmp_path / "data"), "--queue", "s", "--to", str(place), "--once"]
    spark.conf.set(LIST_EVERY, "3")
    try:
        archive.run(spark, parsed(*words, "--batch", "5", "--roll-every", "0"), ProgressLine(None))
    finally:
        spark.conf.unset(LIST_EVERY)
    small = set(place.glob(FILES))
    two_files = 2 * max(file.stat().st_size for file in small) + 1
    command = [sys.executable, "-m", "warren", "pipeline", "compact", "--archive", str(place), "--in-place"]
    command += ["--file-size", str(two_files), "--quiet", "--master", "local[2]", *CONF_WORDS]
    noted: set[Path] = set()

    def is_written() -> bool:
        return any(place.glob("_merges/*/part-*.parquet"))

    def is_noted() -> bool:
        return bool(set(place.glob("_merges/*.json")) - noted)

    def is_removed() -> bool:
        return not all(file.exists() for file in small)

    with Reading(place) as reading:
        for stage in (is_written, is_noted, is_removed):
            noted = set(place.glob("_merges/*.json"))
            kill_when(command, stage, tmp_path / "driver.log")
            rows = read_archive(spark, str(place)).select("offset").collect()
            assert sorted(row.offset for row in rows) == wanted, stage
    assert reading.rounds
    assert not reading.wrong

    subprocess.run(command, check=True, timeout=START_SECONDS_MAX)
    rows = read_archive(spark, str(place)).select("offset").collect()
    assert sorted(row.offset for row in rows) == wanted
    files = {file.relative_to(place).as_posix() for file in place.glob(FILES)}
    assert files == places_in(current_lists(place))
    assert len(files) < len(small)


@pytest.mark.timeout(100 + 100 * KILLS)
def test_query_that_is_killed_again_and_again_has_each_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "table"
    with broker_with_streams(tmp_path, s={}) as broker:
        options = {"url": broker.http_url, "subscribe": "s"}
        command = [sys.executable, "-m", endless_query.__name__, str(place), f"maxOffsetsPerTrigger={BATCH}"]
        with Publishing(broker.address, "s") as published:
            kill_often([*command, *(f"{k}={v}" for k, v in options.items())], place, tmp_path)
        endless_query.start(spark, str(place), options, availableNow=True).awaitTermination()
    rows = spark.read.parquet(str(place)).select("offset", "body").collect()
    check_each_once([(row.offset, bytes(row.body)) for row in rows], published.confirmed)


def test_batch_that_was_written_before_a_kill_is_neither_written_again_nor_taken_for_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = DataDirectory(tmp_path / "data").queue("s")
    place = tmp_path / "archive"
    options = parsed("--path", str(tmp_path / "data"), "--queue", "s", "--to", str(place), "--once")
    stream.append(5)
    archive.run(spark, options, ProgressLine(None))
    for name in ("0", ".0.crc"):  # as if the job had been killed just before it committed the batch
        (place / "_checkpoint" / "commits" / name).unlink()
    stream.append(3)

    numbers = archive.run(spark, options, ProgressLine(None)).numbers
    assert (numbers["messages read"], numbers["offsets without a message"]) == (3, 0)
    rows = read_archive(spark, str(place)).select("offset").collect()
    assert sorted(row.offset for row in rows) == list(range(8))


def test_archive_whose_lists_are_lost_is_told_and_keeps_every_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    DataDirectory(tmp_path / "data").queue("s").append(5)
    place = tmp_path / "archive"
    options = parsed("--path", str(tmp_path / "data"), "--queue", "s", "--to", str(place), "--once")
    archive.run(spark, options, ProgressLine(None))
    before = sorted(place.rglob("*.parquet"))
    assert before
    shutil.rmtree(place / "_spark_metadata")

    with pytest.raises(PipelineError, match="_spark_metadata"):
        archive.run(spark, options, ProgressLine(None))
    assert sorted(place.rglob("*.parquet")) == before
    shutil.rmtree(place / "_checkpoint")
    with pytest.raises(PipelineError, match="_spark_metadata"):
        archive.run(spark, options, ProgressLine(None))
    assert sorted(place.rglob("*.parquet")) == before


def test_batch_without_messages_is_no_list_that_was_lost(spark: SparkSession, tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.queue("s0").append(5)
    words = [
        "--path",
        str(tmp_path / "data"),
        "--pattern",
        "s.*",
        "--to",
        str(tmp_path / "archive"),
        "--once",
    ]
    archive.run(spark, parsed(*words), ProgressLine(None))
    data.queue("s1")  # a new stream joins in a batch that has no messages
    for _ in range(2):
        assert archive.run(spark, parsed(*words), ProgressLine(None)).numbers["messages read"] == 0


def test_second_archive_at_once_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    DataDirectory(tmp_path / "data").queue("s").append(5)
    place = str(tmp_path / "archive")
    options = parsed("--path", str(tmp_path / "data"), "--queue", "s", "--to", place, "--once")
    with only_one(place, elsewhere=False), pytest.raises(PipelineError, match="by another archive"):
        archive.run(spark, options, ProgressLine(None))
    assert archive.run(spark, options, ProgressLine(None)).numbers["messages written"] == 5


def test_retention_that_overtook_a_stopped_archive_is_an_error_unless_loss_is_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with broker_with_streams(tmp_path, s={"x-max-length-bytes": 2 * SEGMENT_BYTES}) as broker:
        words = ["--url", broker.http_url, "--queue", "s", "--to", str(tmp_path / "archive"), "--once"]
        archived = publish(broker, 0, 10)
        archive.run(spark, parsed(*words), ProgressLine(None))
        end = publish(broker, archived, 2000)
        with closing(HttpLog(broker.http_url, "guest", "guest")) as log:
            first = log.contents("/", "s").first_offset
        assert first > archived

        with pytest.raises(Exception, match="retention overtook the reader") as failed:
            archive.run(spark, parsed(*words), ProgressLine(None))
        assert for_the_command(failed.value) == (
            f"offsets {archived} to {first - 1} of stream 's' are gone: retention overtook the reader; "
            "give --allow-data-loss to go on without them"
        )
        result = archive.run(spark, parsed(*words, "--allow-data-loss"), ProgressLine(None))

    assert result.numbers["offsets without a message"] == first - archived
    rows = read_archive(spark, str(tmp_path / "archive")).select("offset").collect()
    assert sorted(row.offset for row in rows) == [*range(archived), *range(first, end)]


def publish(broker: BrokerProcess, first: int, count: int) -> int:
    """Publish `count` numbers and one more; returns the next number."""
    with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
        channel = connection.channel()
        for number in range(first, first + count):
            channel.basic_publish("", "s", b"%d" % number)
        channel.confirm_delivery()
        channel.basic_publish("", "s", b"%d" % (first + count))  # its confirm says that all are stored
    return first + count + 1
