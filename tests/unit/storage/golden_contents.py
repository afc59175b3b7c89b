"""What is in tests/golden/data-1, which a broker wrote until it was killed: its configuration, and what has
to be there when it is read back.

Its clock stood at TIME_MS, long after any of these messages could have expired by now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from warren.amqp.properties import BasicProperties
from warren.amqp.table import (
    Float32,
    Int8,
    Int16,
    Int64,
    OldInt64,
    Table,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
)

TIME_MS = 4_102_444_800_000  # 2100-01-01
VHOST = "größe"
QUEUE_UTF8 = "キュー/ü"
ORDERS_PASSWORD = "let me in"  # noqa: S105 - of nobody
CONFIG = """
segment_bytes = 4096
vhosts = ["/", "größe"]

[[users]]
name = "guest"
password_hash = "VZ+3sIUPGxqzLUEvMtnrXM67JhVSGsMmP4HUZr1IocnDK2Vv"
hashing_algorithm = "rabbit_password_hashing_sha256"
tags = ["administrator", "monitoring"]
permissions."/" = { configure = ".*", write = ".*", read = ".*" }
permissions."größe" = { configure = ".*", write = ".*", read = ".*" }

[[users]]
name = "orders"
password_hash = "AAECAwQFBgcICQoLDA0ODymhMEnyZiX9C1C6jtQH0BGJCyPODKyLqW1rwKf4gOaU"
permissions."/" = { configure = "^$", write = "^events$", read = "^orders" }
topic_permissions."/"."events" = { write = "^orders\\\\.", read = "" }

[[users]]
name = "nobody"
"""

ALL_TYPES: Table = {
    "bool": True,
    "int8": Int8(-8),
    "uint8": UInt8(200),
    "int16": Int16(-1600),
    "uint16": UInt16(65_000),
    "int32": -32,
    "uint32": UInt32(4_000_000_000),
    "int64": Int64(-(2**40)),
    "old int64": OldInt64(2**50),
    "float": Float32(1.5),
    "double": 0.1,
    "decimal": Decimal("-12.34"),
    "string": "grün",
    "not utf-8": b"\xff\xfe",
    "bytes": bytearray(b"\x00\x01"),
    "array": [1, "two", [True, None]],
    "table": {"inner": {"deep": 1}, "!odd": "mark"},
    "timestamp": Timestamp(1_700_000_000),
    "void": None,
    "größe": "name in utf-8",
}
QUEUE_ARGUMENTS: Table = {"x-max-length": 100_000, "x-custom": {"!bytes": "not bytes"}}
ALL_PROPERTIES = BasicProperties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"x": 1},
    delivery_mode=2,
    priority=9,
    correlation_id="correlation",
    reply_to="answers",
    expiration="3600000",
    message_id="message-1",
    timestamp=1_700_000_000,
    type="greeting",
    user_id="guest",
    app_id="golden",
    cluster_id="cluster",
)
PERSISTENT = BasicProperties(delivery_mode=2)


@dataclass(frozen=True)
class Golden:
    """A message as it has to come back."""

    position: int
    body: bytes
    properties: BasicProperties = field(default_factory=lambda: PERSISTENT)
    exchange: str = ""
    key: str = "kinds"
    redelivered: bool = False


KINDS = [
    Golden(1, b"", redelivered=True),  # was delivered three times, and given back twice
    # 2 is done with
    Golden(3, b"with a consumer when the broker was killed", redelivered=True),
    Golden(4, b"all properties", ALL_PROPERTIES),
    Golden(5, b"all types", BasicProperties(delivery_mode=2, headers=ALL_TYPES)),
    Golden(6, "Grüße 👋\n".encode(), exchange="events", key="grüße.all"),
    # 7 was transient
    Golden(8, bytes(range(256))),
    Golden(9, b"last"),
]


def body_of(position: int) -> bytes:
    """Three of these fill a segment."""
    return b"%d " % position * (700 if position < 9 else 1500)


LONG = [
    Golden(position, body_of(position), key="long", redelivered=position in {1, 3})
    for position in (1, 3, 6, 7, 8, 9)
]
UTF8 = [Golden(1, b"found by its headers", BasicProperties(delivery_mode=2, headers={"a": 1}), "köpfe", "k")]
