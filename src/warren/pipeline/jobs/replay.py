"""replay: publishes recorded messages to an exchange again, with confirms, at a limited rate, each once.

The header x-deduplication-header of a replayed message says where it was recorded, `vhost/queue/offset`. An
exchange or queue that deduplicates drops a message that comes a second time, so a replay that was cut off is
simply run again. In a queue with priorities each priority has offsets of its own, so for a message with a
priority the header ends in `/p5`.

A message keeps its routing key, properties and headers, also those of its deaths, unless --drop-headers is
given. The header x-replayed-from says where it was recorded. A message without an id gets this as its id;
with --new-message-ids all messages do, and x-original-message-id has the earlier id. The property user_id is
not kept, since the user who replays is another one.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.extent import COLUMNS
from warren.pipeline.jobs.numbers import positive
from warren.pipeline.jobs.replay_task import COUNTS, WANTED, publish_batches
from warren.pipeline.jobs.rows import plain, whole
from warren.pipeline.publisher import WINDOW_DEFAULT
from warren.pipeline.report.progress import ProgressLine
from warren.pipeline.report.result import JobResult, Table, Value
from warren.pipeline.sink.options import WriteOptions, read_options

ABOUT = "publish recorded messages to an exchange again, confirmed, each once"
REPLAYED_FROM, ORIGINAL_ID = "x-replayed-from", "x-original-message-id"
DEATH_HEADERS = tuple(
    f"x-{which}-death-{what}" for which in ("first", "last") for what in ("queue", "reason", "exchange")
)
BROKER_HEADERS = ("x-death", *DEATH_HEADERS, "x-delivery-count", "x-stream-offset")
"""Headers that brokers add to messages on their way."""

KEPT = (
    "correlation_id", "content_type", "content_encoding", "type", "app_id", "reply_to", "priority",
    "delivery_mode", "expiration", "published_at", "cluster_id",
)  # fmt: skip


@dataclass(frozen=True)
class ReplayResult:
    """How many messages were replayed."""

    queues: Sequence[Sequence[Value]]  # a row for each queue, with the columns of `extent.COLUMNS`
    read: int
    skipped: int  # for which `where` was not true
    published: int
    confirmed: int  # of the published ones
    failed: int  # that no queue took


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inputs.add_arguments(parser)
    parser.add_argument("--where", metavar="SQL", help="only messages for which this is true")
    add = parser.add_argument_group("where to publish").add_argument
    add("--amqp", required=True, metavar="URI", help="the broker: amqp://user:password@host:5672/vhost")
    add(
        "--exchange",
        required=True,
        metavar="NAME",
        help="publish to this exchange ('': straight to queues)",
    )
    add("--routing-key", metavar="KEY", help="with this key (default: each message's own)")
    add("--rate", type=positive, metavar="N", help="messages a second at most (default: no limit)")
    add(
        "--window",
        type=positive,
        metavar="N",
        help=f"messages that may be unconfirmed (default: {WINDOW_DEFAULT})",
    )
    add(
        "--drop-headers",
        nargs="*",
        metavar="NAME",
        help="leave out these headers; without a name those that brokers add, such as x-death",
    )
    add(
        "--new-message-ids",
        action="store_true",
        help="let message_id say where a message was recorded (default: each keeps its own)",
    )
    add(
        "--errors",
        metavar="DIR",
        help="keep messages there that no queue takes (default: the first of them ends the replay)",
    )


def replay(
    messages: DataFrame,
    target: WriteOptions,
    *,
    where: str | None = None,
    drop_headers: Sequence[str] = (),
    new_ids: bool = False,
) -> ReplayResult:
    """Publish the messages for which `where` is true. With a rate, one task publishes them all, in order."""
    prepared = prepare(messages, where=where, drop_headers=drop_headers, new_ids=new_ids)
    if target.rate:
        prepared = prepared.coalesce(1)
    options = replace(target, deduplicate=True)
    publish = partial(publish_batches, options=options, name=uuid.uuid4().hex)
    counts = prepared.mapInArrow(publish, COUNTS)
    rows = counts.groupBy("vhost", "queue").agg(
        *(sf.sum(name).alias(name) for name in ("published", "skipped", "failed")),
        sf.min("first_offset"),
        sf.max("last_offset"),
        sf.min("first_time"),
        sf.max("last_time"),
    )
    return _summed([plain(row) for row in rows.orderBy("vhost", "queue").collect()])


def prepare(
    messages: DataFrame, *, where: str | None, drop_headers: Sequence[str], new_ids: bool = False
) -> DataFrame:
    """The messages as they are to be published, and where they were recorded. The column WANTED says whether
    to publish a message.
    """
    wanted = sf.coalesce(sf.expr(where), sf.lit(False)) if where else sf.lit(True)
    try:
        found = messages.withColumn(WANTED, wanted.cast("boolean"))
        _ = found.schema  # Spark Connect checks the condition only here
    except AnalysisException as error:
        raise UsageError(f"--where {where}: {error.getMessage() or error}".splitlines()[0]) from error
    return found.select(
        "vhost",
        "queue",
        "offset",
        "timestamp",
        WANTED,
        "routing_key",
        (source_id() if new_ids else sf.coalesce("message_id", source_id())).alias("message_id"),
        source_id().alias("deduplication_id"),
        *KEPT,
        _header_types(new_ids=new_ids).alias("header_types"),
        _headers(drop_headers, new_ids=new_ids).alias("headers"),
        sf.when(sf.col(WANTED), sf.col("body")).alias("body"),
    )


def source_id() -> Column:
    """`vhost/queue/offset`, and `/p5` for a message with priority 5: each priority has offsets of its own."""
    priority = sf.when(sf.col("priority") > 0, sf.concat(sf.lit("p"), sf.col("priority").cast("string")))
    return sf.concat_ws("/", "vhost", "queue", sf.col("offset").cast("string"), priority)


def _headers(drop: Sequence[str], *, new_ids: bool) -> Column:
    """A message's headers with ours, which replace those that an earlier replay has added."""
    gone = [REPLAYED_FROM, *([ORIGINAL_ID] if new_ids else []), *drop]
    kept = sf.map_filter(sf.coalesce("headers", _nothing()), lambda name, _value: ~name.isin(gone))
    own = sf.create_map(sf.lit(REPLAYED_FROM), source_id())
    if not new_ids:
        return sf.map_concat(kept, own)
    original = sf.create_map(sf.lit(ORIGINAL_ID), sf.col("message_id"))
    return sf.map_concat(kept, own, sf.when(sf.col("message_id").isNotNull(), original).otherwise(_nothing()))


def _header_types(*, new_ids: bool) -> Column:
    """The types of the headers. Ours are strings, so they have none."""
    ours = [REPLAYED_FROM, *([ORIGINAL_ID] if new_ids else [])]
    return sf.map_filter("header_types", lambda name, _kind: ~name.isin(ours))


def _nothing() -> Column:
    return sf.create_map().cast("map<string,string>")


def _summed(rows: Sequence[Sequence[Value]]) -> ReplayResult:
    published, skipped, failed = (sum(whole(row[place]) for row in rows) for place in (2, 3, 4))
    return ReplayResult(
        queues=[[*row[:3], *row[5:]] for row in rows],
        read=published + skipped,
        skipped=skipped,
        published=published,
        confirmed=published - failed,
        failed=failed,
    )


def check(options: argparse.Namespace) -> None:
    inputs.check(options)
    target_of(options)


def target_of(options: argparse.Namespace) -> WriteOptions:
    given = {
        "amqp": options.amqp,
        "exchange": options.exchange,
        "routingKey": options.routing_key,
        "window": options.window,
        "rate": options.rate,
        "errors": options.errors,
        "deduplicate": "true",
    }
    try:
        return read_options({name: str(value) for name, value in given.items() if value is not None})
    except PipelineError as error:
        raise UsageError(str(error).replace("option ", "--", 1)) from error


def run(spark: SparkSession, options: argparse.Namespace, progress: ProgressLine) -> JobResult:
    target = target_of(options)
    messages = inputs.read(spark, inputs.source_of(options))
    if options.routing_key is not None:
        messages = messages.withColumn("routing_key", sf.lit(options.routing_key))
    drop = BROKER_HEADERS if options.drop_headers == [] else options.drop_headers or ()
    with progress.step("publishing"):
        done = replay(
            messages, target, where=options.where, drop_headers=drop, new_ids=options.new_message_ids
        )
    return _told(done, options)


def _told(done: ReplayResult, options: argparse.Namespace) -> JobResult:
    result = JobResult(title=f"Replay to exchange '{options.exchange}'", ok=not done.failed)
    result.numbers |= {
        "messages read": done.read,
        "messages skipped": done.skipped,
        "messages published": done.published,
        "messages confirmed": done.confirmed,
        "messages that no queue took": done.failed,
    }
    result.tables.append(Table("Published", COLUMNS, done.queues))
    if done.failed:
        result.notes.append(f"What no queue took is in {options.errors}.")
    return result
