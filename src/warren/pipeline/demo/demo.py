"""The demo: a shop is open for a few seconds, then the jobs archive, flow and dead-letters read its messages.

    <to>/archive/          the stream as Parquet, by vhost, queue and day
    <to>/flow/             windows of rates and latencies, as Parquet
    <to>/dead-letters/     the causes of death of the day, as Parquet
    <to>/report.html       all results, with plots

The broker's own data is deleted at the end.
"""

from __future__ import annotations

import argparse
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession

from warren.pipeline.demo.broker import DemoBroker
from warren.pipeline.demo.shop import (
    DEAD_LETTERS,
    HISTORY,
    PAYMENTS,
    RATE,
    RETRY,
    SHIPPING,
    TEST,
    Sales,
    open_shop,
    set_up,
)
from warren.pipeline.demo.worker import Worker
from warren.pipeline.errors import UsageError
from warren.pipeline.jobs import archive, dead_letters, flow
from warren.pipeline.jobs.numbers import positive
from warren.pipeline.report.html import as_html
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult, Table
from warren.version import __version__

ABOUT = "see it all in a minute: a shop on a broker of its own, and what the jobs make of it"
TO = "warren-demo"
SECONDS = 12
COURIER_RATE = 0.8 * RATE
REFUSED_EVERY = 25
DAY = "1 second"
"""The length of the windows: a second of the demo stands for an hour of the shop."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        type=Path,
        default=TO,
        metavar="DIR",
        help="leave files and the report there (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds", type=positive, default=SECONDS, help="how long the shop is open (default: %(default)s)"
    )


def check(options: argparse.Namespace) -> None:
    if options.remote:
        raise UsageError("the demo's files are on this machine: it runs with --master, not --remote")
    if options.to.exists() and (not options.to.is_dir() or any(options.to.iterdir())):
        raise UsageError(f"--to {options.to} is there already: name another directory, or remove it")


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    to: Path = options.to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    place = to / "broker"
    place.mkdir()
    with DemoBroker(place) as broker:
        with progress.step("the shop is open"):
            sales, table = _open(broker, options.seconds)
        results = _look(spark, broker, to, progress)
    shutil.rmtree(place)
    own = _told(sales, table, to)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    made = f"warren pipeline demo, WarrenMQ {__version__}, {now} UTC"
    page = as_html([own, *results], title="A shop on WarrenMQ", made=made)
    (to / "report.html").write_text(page, encoding="utf-8")
    return own


def _open(broker: DemoBroker, seconds: int) -> tuple[Sales, Table]:
    set_up(broker.uri)
    with (
        Worker(broker.uri, PAYMENTS, accepts=_card_is_good, rate=10 * RATE) as cashier,
        Worker(broker.uri, SHIPPING, accepts=lambda _key, _tag: True, rate=COURIER_RATE) as courier,
    ):
        sales = open_shop(broker.uri, seconds=seconds)
    workers = (("cashier", PAYMENTS, cashier), ("courier", SHIPPING, courier))
    rows = [(name, queue, worker.accepted, worker.rejected) for name, queue, worker in workers]
    return sales, Table("Who worked", ("who", "queue", "accepted", "rejected"), rows)


def _card_is_good(routing_key: str, delivery_tag: int) -> bool:
    return not routing_key.endswith(TEST) and delivery_tag % REFUSED_EVERY != 0


def _look(spark: SparkSession, broker: DemoBroker, to: Path, progress: ProgressLine) -> list[JobResult]:
    """Run the jobs as their commands would; the report shows these commands."""
    where = ["--url", broker.url, "--queue"]
    commands: list[tuple[str, ModuleType, list[str]]] = [
        ("archive", archive, [*where, HISTORY, "--once", "--to", str(to / "archive")]),
        ("flow", flow, [*where, HISTORY, "--window", DAY, "--to", str(to / "flow")]),
        (
            "dead-letters",
            dead_letters,
            [*where, DEAD_LETTERS, PAYMENTS, RETRY, "--to", str(to / "dead-letters")],
        ),
    ]
    return [_run(spark, name, job, words, progress) for name, job, words in commands]


def _run(
    spark: SparkSession, name: str, job: ModuleType, words: list[str], progress: ProgressLine
) -> JobResult:
    parser = argparse.ArgumentParser(prog=name)
    job.add_arguments(parser)
    progress.say(f"warren pipeline {name} {' '.join(words)}")
    result: JobResult = job.run(spark, parser.parse_args(words), progress)
    result.notes.insert(0, f"warren pipeline {name} {' '.join(words)}")
    return result


def _told(sales: Sales, workers: Table, to: Path) -> JobResult:
    result = JobResult(title="The shop")
    result.numbers |= {
        "orders": sales.orders,
        "messages published": sales.events,
        "test orders that somebody left on": sales.test_orders,
    }
    result.tables.append(workers)
    result.notes += [
        f"The report with plots is {to / 'report.html'}.",
        f"The archive is {to / 'archive'}: Parquet, by vhost, queue and day. Look around in it with",
        f"warren pipeline flow --archive {to / 'archive'} --queue {HISTORY} --window '{DAY}'",
    ]
    return result
