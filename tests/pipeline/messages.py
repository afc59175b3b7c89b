"""Recorded messages for the tests of jobs, as plain dictionaries and as a table of Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from warren.pipeline.source.schema import SCHEMA

Message: TypeAlias = dict[str, Any]

START = datetime(2026, 3, 1, 23, 50, tzinfo=UTC)
COLUMNS = [part.split()[0] for part in SCHEMA.split("x_death")[0].split(", ") if part.strip()]
ALL = [*COLUMNS, "x_death", "body"]


def message(queue: str, offset: int, **fields: object) -> Message:
    """A message in the vhost `/`, a second later than that of the offset before."""
    plain: Message = dict.fromkeys(ALL)
    plain |= {"vhost": "/", "queue": queue, "offset": offset, "timestamp": START + timedelta(seconds=offset)}
    plain |= {"exchange": "shop", "routing_key": "order.new", "body": b"", **fields}
    if plain["headers"] is not None and plain["header_types"] is None:
        plain["header_types"] = {}
    return plain


def death(queue: str, reason: str, *, count: int = 1, expiration: str | None = None) -> dict[str, Any]:
    return {
        "count": count, "exchange": "shop", "queue": queue, "reason": reason, "routing_keys": ["order.new"],
        "time": START, "original_expiration": expiration,
    }  # fmt: skip


def some_messages(seed: int, count: int) -> list[Message]:
    """Messages of three queues, before and after midnight, with various sizes, keys and publisher's times."""
    chance = random.Random(seed)
    found = []
    for queue in ("orders", "a b/c=d:%*", "7"):
        for offset in range(count):
            came = START + timedelta(milliseconds=offset * 9_000 + chance.randrange(5_000))
            sent_ms = int(came.timestamp() * 1000) - chance.randrange(1, 400)
            headers = chance.choice(
                [None, {}, {"timestamp_in_ms": str(sent_ms)}, {"timestamp_in_ms": "soon"}]
            )
            found.append(
                message(
                    queue,
                    offset,
                    timestamp=came,
                    routing_key=chance.choice(["order.new", "order.paid", ""]),
                    message_id=chance.choice([None, f"m{chance.randrange(20)}"]),
                    headers=headers,
                    body=bytes(chance.randrange(300)),
                )
            )
    return found


def table(spark: SparkSession, messages: list[Message]) -> DataFrame:
    rows = [tuple(row[column] for column in ALL) for row in messages]
    return spark.createDataFrame(rows, SCHEMA)
