"""The one table that every kind of queue is read as. Spark's types of it are in `pipeline/source`."""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.map_(pa.string(), pa.string())
KEYS = pa.list_(pa.string())
DEATH = pa.struct(
    [
        ("count", pa.int64()),
        ("exchange", pa.string()),
        ("queue", pa.string()),
        ("reason", pa.string()),
        ("routing_keys", KEYS),
        ("time", TIME),
        ("original_expiration", pa.string()),
    ]
)
DEATHS = pa.list_(DEATH)
SCHEMA = pa.schema(
    [
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("content_type", pa.string()),
        ("content_encoding", pa.string()),
        ("type", pa.string()),
        ("app_id", pa.string()),
        ("user_id", pa.string()),
        ("reply_to", pa.string()),
        ("priority", pa.int32()),
        ("delivery_mode", pa.int32()),
        ("expiration", pa.string()),
        ("headers", HEADERS),
        ("x_death", DEATHS),
        ("body", pa.binary()),
    ]
)
