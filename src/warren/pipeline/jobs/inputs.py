"""Where a job's messages come from: a broker's files, a broker by HTTP, or an archive; and which messages.

This is the one place that knows both the options of the data source `warren` and those of the commands.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from warren.pipeline.errors import UsageError
from warren.pipeline.failures import for_the_command
from warren.pipeline.jobs.tables import read_archive
from warren.pipeline.segments.errors import BadOption, ReadError
from warren.pipeline.segments.http import HttpLog
from warren.pipeline.segments.log import QueueRef
from warren.pipeline.source.options import parse_options
from warren.pipeline.source.positions import split
from warren.pipeline.source.streaming import QueryReader

FORMAT = "warren"
EDGES = ("earliest", "latest")
PASSWORD_VARIABLE = "WARREN_PASSWORD"  # noqa: S105 - where to find one


@dataclass(frozen=True, kw_only=True)
class InputSlice:
    """Which messages a job reads. Ends are exclusive.

    Offsets are as on the command line: `earliest`, `latest`, a number, or JSON with a number for each queue.
    """

    vhost: str = "/"
    queues: tuple[str, ...] = ()  # by name; or by `pattern`
    pattern: str | None = None  # a regular expression for whole names
    from_offset: str | None = None
    to_offset: str | None = None
    since_ms: int | None = None  # instead of `from_offset`
    until_ms: int | None = None  # instead of `to_offset`
    data_loss_allowed: bool = False  # whether to go on if messages are gone that should be read


@dataclass(frozen=True, kw_only=True)
class JobInput:
    """What a job reads from, and which messages."""

    archive: str | None = None  # a directory that the archive job wrote; None: a broker or its files
    access: Mapping[str, str] = field(default_factory=dict)  # options that lead to the broker or its files
    slice: InputSlice = field(default_factory=InputSlice)


# --- from the command line ---


def add_arguments(parser: argparse.ArgumentParser, *, archive: bool = True, ending: bool = True) -> None:
    """`archive`: whether the job can read an archive; `ending`: whether it has options for where to end."""
    group = parser.add_argument_group("what to read")
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", metavar="DIR", help="a broker's data directory, which all of Spark can read")
    where.add_argument("--url", help="a broker's HTTP API, such as http://host:15672")
    if archive:
        where.add_argument("--archive", metavar="DIR", help="Parquet files that `archive` wrote")
    group.add_argument(
        "--user", default="guest", help="the user to log in as, with --url (default: %(default)s)"
    )
    group.add_argument("--password", help=f"the user's password (default: ${PASSWORD_VARIABLE}, or guest)")
    group.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="go on if messages are gone that should be read: by retention, or damaged (default: fail)",
    )
    add_slice_arguments(group, ending=ending)


def add_slice_arguments(group: argparse._ArgumentGroup, *, ending: bool = True) -> None:
    add = group.add_argument
    add("--vhost", default="/", help="of these queues (default: %(default)s)")
    add("--queue", nargs="+", action="extend", default=[], metavar="NAME", help="queues or streams by name")
    add("--pattern", metavar="REGEX", help="all queues and streams whose whole name matches")
    offset = "earliest, latest, a number, or JSON such as '{\"orders\": 42}'"
    add("--from-offset", metavar="OFFSET", help=f"begin there: {offset}")
    add(
        "--since", type=moment_ms, metavar="TIME", help="begin at this time: ISO 8601 (UTC), or ms since 1970"
    )
    if ending:
        add("--to-offset", metavar="OFFSET", help="end before this offset, written as for --from-offset")
        add("--until", type=moment_ms, metavar="TIME", help="end before this time")


def moment_ms(text: str) -> int:
    """Milliseconds since 1970 of a time on the command line; one without a zone is in UTC."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"neither ISO 8601 nor milliseconds since 1970: {text!r}") from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def source_of(options: argparse.Namespace) -> JobInput:
    archive = getattr(options, "archive", None)
    chosen = slice_of(options)
    if archive is None and not chosen.queues and chosen.pattern is None:
        raise UsageError("which queues? Name them with --queue, or give a --pattern")
    return JobInput(archive=archive, access={} if archive else access_of(options), slice=chosen)


def slice_of(options: argparse.Namespace) -> InputSlice:
    if options.queue and options.pattern is not None:
        raise UsageError("--queue and --pattern exclude each other")
    for offset, time in (("from_offset", "since"), ("to_offset", "until")):
        if getattr(options, offset, None) is not None and getattr(options, time, None) is not None:
            raise UsageError(f"--{offset.replace('_', '-')} and --{time} exclude each other")
    return InputSlice(
        vhost=options.vhost,
        queues=tuple(options.queue),
        pattern=_checked_pattern(options.pattern),
        from_offset=options.from_offset,
        to_offset=getattr(options, "to_offset", None),
        since_ms=options.since,
        until_ms=getattr(options, "until", None),
        data_loss_allowed=getattr(options, "allow_data_loss", False),
    )


def check(options: argparse.Namespace) -> None:
    """Raise for errors in these options that can be found without Spark."""
    source = source_of(options)
    if source.archive is None:
        try:
            parse_options(reader_options(source, headers=True, body=True), streaming=False)
        except BadOption as error:
            raise UsageError(for_the_command(error)) from error


def access_of(options: argparse.Namespace) -> dict[str, str]:
    if options.path:  # made absolute, since Spark's workers may run in another directory
        return {"path": options.path if "://" in options.path else str(Path(options.path).absolute())}
    return {"url": options.url, "user": options.user, "password": password_of(options)}


def password_of(options: argparse.Namespace) -> str:
    return options.password or os.environ.get(PASSWORD_VARIABLE, "guest")


def _checked_pattern(pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"--pattern {pattern} is no regular expression: {error}") from error
    return pattern


# --- to Spark ---


def read(spark: SparkSession, source: JobInput, *, headers: bool = True, body: bool = True) -> DataFrame:
    """The messages as they are now."""
    if source.archive is not None:
        return select(read_archive(spark, source.archive), source.slice)
    reader = spark.read.format(FORMAT).options(**reader_options(source, headers=headers, body=body))
    return reader.load()


def read_stream(
    spark: SparkSession,
    source: JobInput,
    *,
    headers: bool = True,
    body: bool = True,
    batch_offsets_max: int | None = None,
    batch_bytes_max: int | None = None,
    reference: str | None = None,
) -> DataFrame:
    """The messages as they arrive; `reference` is the name under which the broker shows how far this is."""
    options = stream_options(source, headers=headers, body=body)
    if batch_offsets_max is not None:
        options["maxOffsetsPerTrigger"] = str(batch_offsets_max)
    if batch_bytes_max is not None:
        options["maxBytesPerTrigger"] = str(batch_bytes_max)
    if reference is not None:
        options["reference"] = reference
    return spark.readStream.format(FORMAT).options(**options).load()


def stream_options(source: JobInput, *, headers: bool, body: bool) -> dict[str, str]:
    """Options to read as a stream, from the first message on unless the slice says where to begin."""
    options = reader_options(source, headers=headers, body=body)
    if "startingTimestamp" not in options:
        options.setdefault("startingOffsets", "earliest")
    return options


def initial_offsets(source: JobInput) -> dict[str, int]:
    """Where a query without a checkpoint begins: Spark does not say that in its progress. Empty if this
    machine cannot reach the streams, even if Spark can.
    """
    options = parse_options(stream_options(source, headers=False, body=False), streaming=True)
    with closing(options.log):
        try:
            return split(QueryReader(options).initialOffset())[0]
        except ReadError:
            return {}


def report_offsets(source: JobInput, reference: str, offsets: Mapping[str, int]) -> None:
    """Tell the broker how far a query got, at its end: the query itself reports a batch only when the next
    one begins. `offsets` are the next to read, by stream.
    """
    options = parse_options(stream_options(source, headers=False, body=False), streaming=True)
    log = options.log
    if isinstance(log, HttpLog):
        with closing(log):
            for name, offset in offsets.items():
                if offset > 0:
                    log.put_offset(QueueRef(options.vhost, name, "stream"), reference, offset - 1)


def reader_options(source: JobInput, *, headers: bool, body: bool) -> dict[str, str]:
    chosen = source.slice
    options = {**source.access, "vhost": chosen.vhost, **_subscription(chosen)}
    options["includeHeaders"], options["includeBody"] = str(headers).lower(), str(body).lower()
    options["failOnDataLoss"] = str(not chosen.data_loss_allowed).lower()
    wanted = {
        "startingOffsets": _offsets("--from-offset", chosen.from_offset, chosen),
        "endingOffsets": _offsets("--to-offset", chosen.to_offset, chosen),
        "startingTimestamp": chosen.since_ms,
        "endingTimestamp": chosen.until_ms,
    }
    return options | {name: str(value) for name, value in wanted.items() if value is not None}


def _subscription(chosen: InputSlice) -> dict[str, str]:
    """Options for the queues to read. The option subscribe separates names by commas, so a name that has a
    comma is given as a pattern.
    """
    if chosen.pattern is not None:
        return {"subscribePattern": chosen.pattern}
    if any("," in name for name in chosen.queues):
        return {"subscribePattern": "|".join(map(re.escape, chosen.queues))}
    return {"subscribe": ",".join(chosen.queues)}


def _offsets(option: str, text: str | None, chosen: InputSlice) -> str | None:
    if text is None or text in EDGES:
        return text
    if text.isdecimal():
        if not chosen.queues:
            raise UsageError(
                f"{option} {text} needs --queue; with --pattern give JSON with a number for each"
            )
        return json.dumps(dict.fromkeys(chosen.queues, int(text)))
    parse_offsets(option, text)
    return text


def parse_offsets(option: str, text: str) -> dict[str, int]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{option} is neither earliest, latest, a number nor JSON: {error}") from error
    if not isinstance(found, dict) or not all(type(offset) is int for offset in found.values()):
        raise UsageError(f"{option} must be a JSON object of whole numbers, such as '{{\"orders\": 42}}'")
    return found


# --- from an archive ---


def select(messages: DataFrame, chosen: InputSlice) -> DataFrame:
    """The messages of the slice: filters that do the same as the data source's options."""
    found = messages.filter(sf.col("vhost") == chosen.vhost)
    if chosen.queues:
        found = found.filter(sf.col("queue").isin(list(chosen.queues)))
    if chosen.pattern is not None:
        found = found.filter(sf.col("queue").rlike(f"^(?:{chosen.pattern})$"))
    if chosen.since_ms is not None:
        found = found.filter(sf.col("timestamp") >= sf.timestamp_millis(sf.lit(chosen.since_ms)))
    if chosen.until_ms is not None:
        found = found.filter(sf.col("timestamp") < sf.timestamp_millis(sf.lit(chosen.until_ms)))
    found = _bounded(found, "--from-offset", chosen.from_offset, is_end=False)
    return _bounded(found, "--to-offset", chosen.to_offset, is_end=True)


def _bounded(messages: DataFrame, option: str, text: str | None, *, is_end: bool) -> DataFrame:
    """Filter by one end of the range; `earliest` and `latest` are the ends of the archive itself."""
    if text is None or text == ("latest" if is_end else "earliest"):
        return messages
    if text in EDGES:
        return messages.filter(sf.lit(False))
    offset = sf.col("offset")
    if text.isdecimal():
        return messages.filter(offset < int(text) if is_end else offset >= int(text))
    for queue, bound in parse_offsets(option, text).items():
        if bound >= 0:  # -1 and -2 are Kafka's latest and earliest
            within = offset < bound if is_end else offset >= bound
            messages = messages.filter((sf.col("queue") != queue) | within)
    return messages
