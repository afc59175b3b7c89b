"""`warren pipeline`: jobs over queues and streams on Spark.

Spark is imported only once a job is named, so that the other commands start without it, and the help of this
one can be read where Spark is not installed. Exits with 0 if all is well, with 1 if the job failed or an
audit found something, and with 2 for options that make no sense.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import click

from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.java import java_home
from warren.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warren.pipeline.report.progress import ProgressLine
    from warren.pipeline.report.result import JobResult

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
NEEDED = ("pyspark", "pyarrow", "pandas")
HOW_TO_GET_IT = "the data pipeline needs Spark: pip install 'warrenmq[spark]'"
WIDTH_MAX = 200
JAVA_HOME = "java-home"
JAVA_HOME_ABOUT = "print the JAVA_HOME that a Spark session of your own can be given"


@dataclass(frozen=True)
class PipelineCommand:
    """What is known of a job before its module is imported."""

    module: str
    about: str


JOBS = {
    "archive": PipelineCommand(
        "warren.pipeline.jobs.archive", "keep streams as Parquet files, each message once"
    ),
    "compact": PipelineCommand("warren.pipeline.jobs.compact", "make an archive's small files into few"),
    "dead-letters": PipelineCommand(
        "warren.pipeline.jobs.dead_letters", "which messages died, where, why and how soon"
    ),
    "flow": PipelineCommand("warren.pipeline.jobs.flow", "rates, sizes and latencies in windows of time"),
    "replay": PipelineCommand("warren.pipeline.jobs.replay", "publish recorded messages again, each once"),
    "what-if": PipelineCommand(
        "warren.pipeline.jobs.what_if", "where messages would have gone with another topology"
    ),
    "audit": PipelineCommand(
        "warren.pipeline.jobs.audit", "find gaps and duplicates, and compare an archive with the live streams"
    ),
    "run": PipelineCommand("warren.pipeline.jobs.run", "run a pipeline that a TOML file describes"),
    "demo": PipelineCommand("warren.pipeline.demo", "see it all in a minute, on a broker of its own"),
}


class Job(Protocol):
    """The functions of a job's module. It may also have `check(options)`, called before Spark starts."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult: ...


@click.command("pipeline", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def pipeline(words: tuple[str, ...]) -> int:
    """Leave the words to the pipeline's own parser: each job has its own options, and pipeline files have the
    same ones.
    """
    return main(words)


def main(words: Sequence[str]) -> int:
    name = next((word for word in words if word in JOBS), None)
    if list(words) == [JAVA_HOME]:
        return _tell_java_home()
    try:
        job = None if name is None else load(name)
    except PipelineError as error:
        return _fail(str(error))
    parser, commands = _parser(), {}
    subparsers = parser.add_subparsers(metavar="JOB", required=True, dest="job")
    for entry_name, entry in JOBS.items():
        commands[entry_name] = subparsers.add_parser(
            entry_name, help=entry.about, description=entry.about, allow_abbrev=False
        )
    subparsers.add_parser(JAVA_HOME, help=JAVA_HOME_ABOUT, description=JAVA_HOME_ABOUT)
    if name is not None and job is not None:
        _add_arguments(commands[name], job)
    options = parser.parse_args(words)
    assert job is not None
    return _run(commands[options.job], job, options)


def _tell_java_home() -> int:
    try:
        sys.stdout.write(f"{java_home()}\n")
    except PipelineError as error:
        return _fail(str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="warren pipeline",
        description="Jobs over queues and streams on Spark. Each tells more with --help.",
        allow_abbrev=False,
    )


def load(name: str) -> Job:
    if any(find_spec(package) is None for package in NEEDED):
        raise PipelineError(HOW_TO_GET_IT)
    return cast("Job", importlib.import_module(JOBS[name].module))


def _add_arguments(parser: argparse.ArgumentParser, job: Job) -> None:
    parser.description = getattr(job, "ABOUT", parser.description)
    job.add_arguments(parser)
    spark = parser.add_argument_group("where to run")
    spark.add_argument("--master", default="local[*]", help="Spark's master (default: %(default)s)")
    spark.add_argument("--remote", metavar="URL", help="a Spark Connect server, such as sc://host:15002")
    spark.add_argument(
        "--conf", action="append", default=[], type=_setting, metavar="KEY=VALUE", help="a setting of Spark"
    )
    output = parser.add_argument_group("what to show")
    output.add_argument(
        "--html", type=Path, metavar="FILE", help="also write the result, with plots, as a page"
    )
    output.add_argument("--quiet", action="store_true", help="show no progress")


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"not KEY=VALUE: {text!r}")
    return key, value


def _run(parser: argparse.ArgumentParser, job: Job, options: argparse.Namespace) -> int:
    from warren.pipeline.failures import for_the_command  # noqa: PLC0415 - Spark is there from here on

    try:
        result = _result(job, options)
        sys.stdout.write(_text(result))
        if options.html:
            _write_page(result, options)
    except UsageError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        _fail("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - Spark raises anything, and nobody wants to see Java's stack
        return _fail(_placed(for_the_command(error), options))
    return 0 if result.ok else EXIT_FAILURE


def _result(job: Job, options: argparse.Namespace) -> JobResult:
    from warren.pipeline.jobs.watch import watch  # noqa: PLC0415
    from warren.pipeline.report.progress import ProgressLine  # noqa: PLC0415
    from warren.pipeline.report.run import run_table  # noqa: PLC0415
    from warren.pipeline.session import open_session  # noqa: PLC0415

    _check(job, options)
    began, clock = datetime.now(UTC), time.monotonic()
    progress = ProgressLine(None if options.quiet else sys.stderr)
    with progress.step("starting Spark"):
        spark = open_session(
            app_name=f"warren {options.job}",
            master=options.master,
            remote=options.remote,
            conf=dict(options.conf),
        )
    try:
        progress.watch = watch(spark, remote=options.remote is not None)
        result = job.run(spark, options, progress)
        result.tables.append(run_table(options, began, time.monotonic() - clock))
        return result
    finally:
        spark.stop()


def _check(job: Job, options: argparse.Namespace) -> None:
    """Check all that can be checked before Spark starts, since that takes a while."""
    if options.html and not options.html.absolute().parent.is_dir():
        raise UsageError(f"--html {options.html}: there is no directory {options.html.absolute().parent}")
    check = getattr(job, "check", None)
    if check is not None:
        check(options)


def _text(result: JobResult) -> str:
    from warren.pipeline.report.text import as_text  # noqa: PLC0415

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_MAX
    return as_text(result, width=min(width, WIDTH_MAX))


def _write_page(result: JobResult, options: argparse.Namespace) -> None:
    from warren.pipeline.report.html import as_html  # noqa: PLC0415

    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    made = f"warren pipeline {options.job}, WarrenMQ {__version__}, {now} UTC"
    try:
        options.html.write_text(as_html([result], title=result.title, made=made), encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"cannot write --html {options.html}: {error.strerror}") from error


def _placed(line: str, options: argparse.Namespace) -> str:
    """Put the option --to in front of an error that names its value: Spark knows the file, but no options."""
    to = getattr(options, "to", None)
    return f"--to {to}: {line}" if isinstance(to, str) and to in line and "--to" not in line else line


def _fail(reason: str) -> int:
    sys.stderr.write(f"warren pipeline: {reason}\n")
    return EXIT_FAILURE
