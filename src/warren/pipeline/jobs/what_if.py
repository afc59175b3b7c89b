"""what-if: compares the queues that recorded messages would have gone to by another topology with those they
went to.

The proposed topology is routed by the broker's own exchanges, on Spark's workers (`routing.py`). A message
went to the queue that it was read from; with --against, it went where that topology sends it. Then one
recording of all messages is enough, such as a stream bound to `#`.

A message that was read from several queues is recognised by its message_id. A message without an id counts
separately for each queue, and then says nothing about other queues.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from warren.pipeline.errors import UsageError
from warren.pipeline.failures import for_the_command
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.extent import extents, tell_extents
from warren.pipeline.jobs.routing import Routes, in_vhost
from warren.pipeline.jobs.rows import collect, top, whole
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import Bars, JobResult, Value
from warren.pipeline.report.run import without_secrets
from warren.pipeline.segments.errors import ReadError
from warren.pipeline.segments.http import HttpLog

ABOUT = "say who would have got recorded messages by another topology"
ROUTED_BY = (
    "vhost", "queue", "offset", "timestamp", "exchange", "routing_key", "message_id", "correlation_id",
    "headers", "header_types", "published_at",
)  # fmt: skip
KEPT = ("vhost", "queue", "offset", "exchange", "routing_key", "message_id")
IDENTITY = ("vhost", "exchange", "routing_key", "identity")
ROUTED_SCHEMA = """vhost string, queue string, offset long, exchange string, routing_key string,
message_id string, would array<string>, did array<string>"""
QUEUE_COLUMNS = ("vhost", "queue", "got", "would have got", "same", "lost", "gained")
CHANGE_COLUMNS = (
    "vhost", "exchange", "routing key", "lost by", "gained by", "messages", "example in", "offset"
)  # fmt: skip
DIFFERENCES_SHOWN_MAX = 30
MICROSECONDS = 1_000_000
DID_NAME, WOULD_NAME = "--against", "--topology"

Rows: TypeAlias = list[list[Value]]
Batches: TypeAlias = Iterator[pa.RecordBatch]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser)
    add = parser.add_argument_group("what if").add_argument
    add(
        "--topology",
        required=True,
        metavar="FILE|URL",
        help="exchanges, queues and bindings: definitions in JSON, or the HTTP API of a broker that has them",
    )
    add(
        "--against",
        metavar="FILE|URL",
        help="compare with this topology, not with the queues that were read",
    )


def routed(messages: DataFrame, topology: str, against: str | None = None) -> DataFrame:
    """For each message, `would` has the queues that it goes to by `topology`, null if there is no such
    exchange; `did` likewise by `against` or, without it, the queue that it was read from. Topologies are
    texts in JSON.
    """
    return messages.select(*ROUTED_BY).mapInArrow(_router(topology, against), ROUTED_SCHEMA)


def _router(topology: str, against: str | None) -> Callable[[Batches], Batches]:
    def route(batches: Batches) -> Batches:
        proposed = Routes(topology, name=WOULD_NAME)
        present = None if against is None else Routes(against, name=DID_NAME)
        for batch in batches:
            would = _destinations(proposed, batch)
            did = (
                _destinations(present, batch) if present else [[name] for name in batch["queue"].to_pylist()]
            )
            kept = [batch[name] for name in ROUTED_BY if name in KEPT]
            lists = [pa.array(column, pa.list_(pa.string())) for column in (would, did)]
            yield pa.RecordBatch.from_arrays([*kept, *lists], names=[*KEPT, "would", "did"])

    return route


def _destinations(routes: Routes, batch: pa.RecordBatch) -> list[list[str] | None]:
    names = ("vhost", "exchange", "routing_key", "headers", "header_types", "message_id", "correlation_id")
    columns = [batch[name].to_pylist() for name in names]
    seconds = batch["published_at"].cast(pa.int64()).to_pylist()
    return [
        routes.route(
            vhost,
            exchange,
            key,
            dict(headers or ()),
            header_types=dict(types or ()),
            message_id=message_id,
            correlation_id=correlation,
            timestamp=None if published is None else published // MICROSECONDS,
        )
        for vhost, exchange, key, headers, types, message_id, correlation, published in zip(
            *columns, seconds, strict=True
        )
    ]


def per_message(routes: DataFrame) -> DataFrame:
    """One row for each message, however many queues it was read from; `did` has all of them."""
    alone = sf.concat_ws("/", "queue", "offset")
    return (
        routes.withColumn("identity", sf.coalesce("message_id", alone))
        .groupBy(*IDENTITY)
        .agg(
            sf.first("would").alias("would"),
            sf.array_sort(sf.array_distinct(sf.flatten(sf.collect_list("did")))).alias("did"),
            sf.min_by("queue", sf.struct("queue", "offset")).alias("read_from"),
            sf.min(sf.struct("queue", "offset"))["offset"].alias("offset"),
        )
    )


def per_queue(messages: DataFrame) -> DataFrame:
    """For each queue, how many messages it got, would have got, would have lost, and would have gained."""
    would, did = sf.coalesce("would", sf.array()), sf.col("did")
    touched = messages.select("vhost", would.alias("would"), "did").select(
        "vhost", "would", "did", sf.explode(sf.array_union("would", "did")).alias("queue")
    )
    gets, got = sf.array_contains("would", sf.col("queue")), sf.array_contains(did, sf.col("queue"))
    return (
        touched.groupBy("vhost", "queue")
        .agg(
            sf.count_if(got).alias("did"),
            sf.count_if(gets).alias("would"),
            sf.count_if(got & gets).alias("same"),
            sf.count_if(got & ~gets).alias("lost"),
            sf.count_if(gets & ~got).alias("gained"),
        )
        .orderBy("vhost", "queue")
    )


def differences(messages: DataFrame) -> DataFrame:
    """The combinations of exchange, key, lost and gained queues, with how many messages have them, and an
    example.
    """
    lost = sf.array_except("did", sf.coalesce("would", sf.array()))
    gained = sf.array_except(sf.coalesce("would", sf.array()), "did")
    changed = messages.withColumn("lost", lost).withColumn("gained", gained)
    return (
        changed.filter((sf.size("lost") > 0) | (sf.size("gained") > 0))
        .groupBy("vhost", "exchange", "routing_key", "lost", "gained")
        .agg(
            sf.count("*").alias("messages"),
            sf.min(sf.struct("read_from", "offset")).alias("example"),
        )
        .select(
            "vhost", "exchange", "routing_key", "lost", "gained", "messages", "example.read_from",
            "example.offset",
        )
        .orderBy(sf.desc("messages"), "vhost", "exchange", "routing_key", sf.col("lost").cast("string"))
    )  # fmt: skip


def outcomes(messages: DataFrame) -> DataFrame:
    """How many messages would go as they did, elsewhere, nowhere, or to an exchange that does not exist."""
    would = sf.array_sort("would")
    outcome = (
        sf.when(sf.col("would").isNull(), "no such exchange")
        .when((sf.size("would") == 0) & (sf.size("did") > 0), "to no queue")
        .when(would == sf.col("did"), "as they did")
        .otherwise("differently")
    )
    return messages.groupBy(outcome.alias("outcome")).count()


def check(options: argparse.Namespace) -> None:
    inputs.check(options)
    _topologies(options)


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    topology, against = _topologies(options)
    result = JobResult(title=f"What if: {without_secrets(options.topology)}")
    messages = inputs.read(spark, inputs.source_of(options), body=False).select(*ROUTED_BY).persist()
    ways = per_message(routed(messages, topology, against)).persist()
    try:
        with progress.step("reading"):
            tell_extents(result, collect(extents(messages)))
        with progress.step("routing"):
            found = {str(row[0]): row[1] for row in collect(outcomes(ways))}
        with progress.step("comparing"):
            queues, changes = collect(per_queue(ways)), collect(differences(ways))
    finally:
        ways.unpersist()
        messages.unpersist()
    _tell(result, found, queues, changes)
    if against is None:
        read = {row[1] for row in result.tables[0].rows}
        unread = sorted(str(row[1]) for row in queues if row[1] not in read)
        if unread:
            names = ", ".join(unread)
            result.notes.append(f"Not read, so all that they would have got counts as gained: {names}.")
    return result


def _topologies(options: argparse.Namespace) -> tuple[str, str | None]:
    """The texts of both topologies. `check` calls this as well, so that errors show before Spark starts."""
    user = (options.user, inputs.password_of(options))
    topology = read_topology(options.topology, WOULD_NAME, vhost=options.vhost, user=user)
    if not options.against:
        return topology, None
    return topology, read_topology(options.against, DID_NAME, vhost=options.vhost, user=user)


def read_topology(place: str, option: str, *, vhost: str, user: tuple[str, str]) -> str:
    """The topology in a file, or of a broker, which is asked as `user` unless the URL names a user. Items
    that name no vhost get `vhost`: RabbitMQ leaves it out when it exports a single vhost.
    """
    text = _fetch(place, option, vhost, user) if "://" in place else _read(place, option)
    name = f"{option} {without_secrets(place)}"
    text = in_vhost(text, vhost, name=name)
    Routes(text, name=name)
    return text


def _read(path: str, option: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {option} {path}: {getattr(error, 'strerror', None) or error}"
        ) from error


def _fetch(url: str, option: str, vhost: str, user: tuple[str, str]) -> str:
    parts = urlsplit(url)
    if parts.username is not None:
        user = (unquote(parts.username), unquote(parts.password or ""))
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    try:
        with closing(HttpLog(bare, *user)) as log:
            return json.dumps(log.definitions(vhost))
    except ReadError as error:
        raise UsageError(f"{option}: {for_the_command(error)}") from error


def _tell(result: JobResult, found: dict[str, Value], queues: Rows, changes: Rows) -> None:
    for outcome in ("as they did", "differently", "to no queue", "no such exchange"):
        result.numbers[f"messages that would go {outcome}".replace("go no such", "find no such")] = (
            found.get(outcome) or 0
        )
    result.tables.append(top("By queue", QUEUE_COLUMNS, queues))
    result.tables.append(top("What would change", CHANGE_COLUMNS, changes, most=DIFFERENCES_SHOWN_MAX))
    for title, place in (("lost", 5), ("gained", 6)):
        rows = [row for row in queues if row[place]]
        if rows:
            labels, values = [str(row[1]) for row in rows], [float(whole(row[place])) for row in rows]
            result.plots.append(Bars(f"Messages {title}, by queue", labels, values, "messages"))
