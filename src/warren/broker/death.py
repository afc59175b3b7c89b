"""The headers of a dead letter, which say why, where and how often the message died.

    x-death     array of tables, the newest first, one for each queue and reason:
                count:long reason queue time:timestamp exchange routing-keys:array [original-expiration]
    x-first-death-queue, -reason, -exchange    of the first death
    x-last-death-queue, -reason, -exchange     of the latest

Only the broker's own x-death counts: one that a client wrote is dropped when the message dies.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from warren.amqp.properties import decode_properties
from warren.amqp.table import LENGTH, Int64, Table, Timestamp, Value, encode_name, encode_table, encode_value
from warren.amqp.traits import add_headers
from warren.broker.message import Message

DEATHS = "x-death"
COPIES = "CC"
EXPIRATION = "original-expiration"
ORIGINAL_EXPIRATION = encode_name(EXPIRATION)
HEADERS_CACHED_MAX = 1_000


class Reason(StrEnum):
    REJECTED = "rejected"
    EXPIRED = "expired"
    MAXLEN = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


class Death(NamedTuple):
    """A message died in a queue."""

    queue: str
    reason: Reason
    time_ms: int


class Letter(NamedTuple):
    """The parts of a dead message that differ from the original's."""

    properties: bytes
    """Encoded, with the headers about its deaths, and without an expiration."""
    keys: list[str]
    """The original's routing key, and those of its CC header."""
    deaths: list[tuple[str, str]]
    """Queue and reason of each entry of x-death, newest first."""

    def closes_cycle(self, queue: str) -> bool:
        """Whether the message died in this queue before, and no client has rejected it since."""
        for place, reason in self.deaths:
            if reason == Reason.REJECTED:
                return False
            if place == queue:
                return True
        return False


def write_letter(message: Message, death: Death, *, drop_copies: bool) -> Letter:
    """The letter of a message that died. With `drop_copies` it loses its CC header: it gets a new
    routing key, and is to go there alone.
    """
    if not message.died and b"-death" not in message.properties and b"\2CC" not in message.properties:
        return _first_letter(message, death)
    properties = decode_properties(message.properties)
    headers = dict(properties.headers or {})
    keys = [message.key, *_copies(headers)]
    deaths = _deaths(headers) if message.died else []
    deaths = _with(deaths, death, properties.expiration, message, keys)
    if not message.died:
        _forget_forged(headers)
    headers[DEATHS] = list(deaths)
    _name_deaths(headers, death, message.exchange_name)
    if drop_copies:
        headers.pop(COPIES, None)
    properties.headers, properties.expiration = headers, None
    return Letter(properties.encode(), keys, [(str(d["queue"]), str(d["reason"])) for d in deaths])


def _first_letter(message: Message, death: Death) -> Letter:
    """The same for a message without headers to change, as most are: the encoded properties are not decoded,
    the new headers are added to them as bytes.
    """
    key = message.key
    entry, names = _first_headers(
        death.queue, death.reason, death.time_ms // 1000, message.exchange_name, key
    )
    if message.expiration_ms >= 0:
        entry += ORIGINAL_EXPIRATION + encode_value(str(message.expiration_ms))
    table = b"F" + LENGTH.pack(len(entry)) + entry
    deaths = encode_name(DEATHS) + b"A" + LENGTH.pack(len(table)) + table
    properties = add_headers(message.properties, deaths + names, True)
    return Letter(properties, [key], [(death.queue, death.reason)])


@lru_cache(HEADERS_CACHED_MAX)
def _first_headers(queue: str, reason: Reason, seconds: int, exchange: str, key: str) -> tuple[bytes, bytes]:
    """The entry of x-death and the other headers, encoded. Messages that die together share them."""
    death = Death(queue, reason, seconds * 1000)
    names: Table = {}
    _name_deaths(names, death, exchange)
    entry = _new(death, None, exchange, [key])
    return encode_table(entry)[LENGTH.size :], encode_table(names)[LENGTH.size :]


def _copies(headers: Table) -> list[str]:
    copies = headers.get(COPIES)
    return [key for key in copies if isinstance(key, str)] if isinstance(copies, list) else []


def _deaths(headers: Table) -> list[Table]:
    deaths = headers.get(DEATHS)
    return [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []


def _forget_forged(headers: Table) -> None:
    """Remove headers about deaths that a client wrote."""
    for which in ("first", "last"):
        for what in ("queue", "reason", "exchange"):
            headers.pop(f"x-{which}-death-{what}", None)


def _new(death: Death, expiration: str | None, exchange: str, keys: list[str]) -> Table:
    entry: Table = {
        "count": Int64(1),
        "reason": str(death.reason),
        "queue": death.queue,
        "time": Timestamp(death.time_ms // 1000),
        "exchange": exchange,
        "routing-keys": list[Value](keys),
    }
    if expiration is not None:
        entry[EXPIRATION] = expiration
    return entry


def _with(
    deaths: list[Table], death: Death, expiration: str | None, message: Message, keys: list[str]
) -> list[Table]:
    """`deaths` with this one in front: a new entry, or that of its queue and reason, counted once more."""
    for known in deaths:
        if (known.get("queue"), known.get("reason")) == (death.queue, str(death.reason)):
            count = known.get("count")
            again = {**known, "count": Int64(int(count) + 1 if isinstance(count, int) else 1)}
            return [again, *(other for other in deaths if other is not known)]
    return [_new(death, expiration, message.exchange_name, keys), *deaths]


def _name_deaths(headers: Table, death: Death, exchange: str) -> None:
    """Write the headers x-first-death-…, unless they are there, and x-last-death-…."""
    names = {"queue": death.queue, "reason": str(death.reason), "exchange": exchange}
    for what, value in names.items():
        headers.setdefault(f"x-first-death-{what}", value)
    for what, value in names.items():
        headers[f"x-last-death-{what}"] = value
