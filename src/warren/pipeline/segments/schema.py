"""The columns of the table that any queue is read as, in Arrow's types; `source/schema.py` has Spark's."""

from __future__ import annotations

import pyarrow as pa

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.map_(TEXT, TEXT)
KEYS = pa.list_(TEXT)
DEATH = pa.struct(
    [
        ("count", pa.int64()),
        ("exchange", TEXT),
        ("queue", TEXT),
        ("reason", TEXT),
        ("routing_keys", KEYS),
        ("time", TIME),
        ("original_expiration", TEXT),
    ]
)
DEATHS = pa.list_(DEATH)
SCHEMA = pa.schema(
    [
        ("vhost", TEXT),
        ("queue", TEXT),
        ("stream_id", TEXT),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("exchange", TEXT),
        ("routing_key", TEXT),
        ("message_id", TEXT),
        ("correlation_id", TEXT),
        ("content_type", TEXT),
        ("content_encoding", TEXT),
        ("type", TEXT),
        ("app_id", TEXT),
        ("user_id", TEXT),
        ("reply_to", TEXT),
        ("priority", pa.int32()),
        ("delivery_mode", pa.int32()),
        ("expiration", TEXT),
        ("published_at", TIME),
        ("cluster_id", TEXT),
        ("headers", HEADERS),
        ("header_types", HEADERS),
        ("x_death", DEATHS),
        ("body", pa.binary()),
    ]
)
NEVER_NULL = frozenset({"vhost", "queue", "offset", "timestamp", "exchange", "routing_key"})
