"""Where a consumer of a stream begins: where `x-stream-offset` says, or behind its remembered offset."""

from __future__ import annotations

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Timestamp, Value
from warren.broker.interval import SECOND_MS, interval_ms
from warren.broker.store import StreamLog

TIME_MS_MAX = 2**63 - 1
OFFSET, TRACKING = "x-stream-offset", "x-stream-automatic-offset-tracking"
NEXT = "next"


def is_tracked(arguments: Table) -> bool:
    """Whether the broker is to remember the consumer's offset, under its consumer tag."""
    tracked = arguments.get(TRACKING, False)
    if not isinstance(tracked, bool):
        raise PreconditionFailed(f"invalid arg '{TRACKING}': {tracked!r} is not a boolean")
    return tracked


def start_position(arguments: Table, log: StreamLog, known: int | None, now_ms: int) -> int:
    """The position of the first message for a consumer. `known` is its remembered offset, the last one that
    it was done with, and wins over the arguments. If a power cut took the end of the stream, `known` may be
    beyond it: then the consumer begins with the next message.
    """
    wanted = arguments.get(OFFSET, NEXT)
    position = _position(wanted, log, now_ms)
    if known is not None:
        position = min(known + 2, log.safe_position() + 1)
    return max(position, log.first_position())


def _position(wanted: Value, log: StreamLog, now_ms: int) -> int:
    """The position that `x-stream-offset` means. Positions count from 1, offsets from 0."""
    if isinstance(wanted, Timestamp):
        return _position_at(int(wanted) * SECOND_MS, log)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0:
        return int(wanted) + 1
    if wanted == "first":
        return log.first_position()
    if wanted == "last":
        return max(log.safe_position(), 1)
    if wanted == NEXT:
        return log.safe_position() + 1
    if isinstance(wanted, str):
        try:
            since_ms = interval_ms(wanted)
        except ValueError:
            since_ms = 0
        if since_ms:
            return _position_at(now_ms - since_ms, log)
    raise PreconditionFailed(
        f"invalid arg '{OFFSET}': {wanted!r} is none of first, last, next, an offset, a timestamp "
        "and an interval such as 7D"
    )


def _position_at(time_ms: int, log: StreamLog) -> int:
    """The position of the first message since a time. Clients may ask for any time, even before 1970."""
    return log.position_at(min(max(time_ms, 0), TIME_MS_MAX))
