"""Recorded messages for the tests of jobs: as plain dictionaries, and the same as a table of Spark."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

Message: TypeAlias = dict[str, Any]

START = datetime(2026, 3, 1, 23, 50, tzinfo=UTC)
SCHEMA = """
vhost string, queue string, offset long, timestamp timestamp, exchange string, routing_key string,
message_id string, correlation_id string, content_type string, content_encoding string, type string,
app_id string, user_id string, reply_to string, priority int, delivery_mode int, expiration string,
headers map<string,string>, x_death array<struct<count:long, exchange:string, queue:string, reason:string,
routing_keys:array<string>, time:timestamp, original_expiration:string>>, body binary
"""
COLUMNS = [
    part.split()[0] for part in SCHEMA.replace("\n", " ").split("x_death")[0].split(", ") if part.strip()
]
ALL = [*COLUMNS, "x_death", "body"]


def message(queue: str, offset: int, **fields: object) -> Message:
    """One of the vhost `/`, a second after that of the offset before."""
    plain: Message = dict.fromkeys(ALL)
    plain |= {"vhost": "/", "queue": queue, "offset": offset, "timestamp": START + timedelta(seconds=offset)}
    plain |= {"exchange": "shop", "routing_key": "order.new", "body": b"", **fields}
    return plain


def death(queue: str, reason: str, *, count: int = 1, expiration: str | None = None) -> dict[str, Any]:
    return {
        "count": count, "exchange": "shop", "queue": queue, "reason": reason, "routing_keys": ["order.new"],
        "time": START, "original_expiration": expiration,
    }  # fmt: skip


def some_messages(seed: int, count: int) -> list[Message]:
    """Of three queues, over a midnight; with sizes, keys and publisher's times of all sorts."""
    chance = random.Random(seed)
    found = []
    for queue in ("orders", "a b/c=d:%*", "7"):
        for offset in range(count):
            came = START + timedelta(milliseconds=offset * 9_000 + chance.randrange(5_000))
            sent_ms = int(came.timestamp() * 1000) - chance.randrange(1, 400)
            headers = chance.choice(
                [None, {}, {"timestamp_in_ms": str(sent_ms)}, {"timestamp_in_ms": '"soon"'}]
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


def header(value: object) -> str:
    """As headers stand in a table."""
    return json.dumps(value)
