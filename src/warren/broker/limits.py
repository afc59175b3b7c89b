"""The limits of vhosts and users. None means no limit, and so does -1 in a command that sets one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

from warren.amqp.errors import PreconditionFailed
from warren.broker.rules import COUNT_MAX, whole_number

NO_LIMIT = -1


@dataclass(frozen=True, kw_only=True)
class VhostLimits:
    max_connections: int | None = None
    max_queues: int | None = None


@dataclass(frozen=True, kw_only=True)
class UserLimits:
    """Each limit is for all connections of the user together."""

    max_connections: int | None = None
    max_channels: int | None = None
    max_publish_rate: int | None = None  # messages a second
    max_publish_bytes: int | None = None  # bytes on the wire a second
    max_consume_rate: int | None = None  # messages a second
    max_consume_bytes: int | None = None  # bytes on the wire a second


NO_LIMITS = UserLimits()
RATES = ("max_publish_rate", "max_publish_bytes", "max_consume_rate", "max_consume_bytes")

L = TypeVar("L", VhostLimits, UserLimits)


def read_limits(kind: type[L], given: object) -> L:
    """Read limits from the attributes of `given`, such as a command; raises 406 if a value is invalid."""
    return kind(**{field.name: _read(field.name, getattr(given, field.name)) for field in fields(kind)})


def _read(name: str, value: int | None) -> int | None:
    if value is None or value == NO_LIMIT:
        return None
    try:
        return whole_number(1 if name in RATES else 0, COUNT_MAX)(value)
    except ValueError as error:
        raise PreconditionFailed(f"{name.replace('_', '-')}: {error}") from None


def is_reached(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit
