"""Which arguments of basic.consume a queue understands."""

from __future__ import annotations

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, type_name
from warren.broker.queue import Queue
from warren.broker.rules import CLASSIC, QUORUM, STREAM, not_for_type, queue_type

PRIORITY, FAILOVER = "x-priority", "x-cancel-on-ha-failover"
OF_STREAMS = {
    "x-stream-offset",
    "x-stream-filter",
    "x-stream-match-unfiltered",
    "x-stream-automatic-offset-tracking",
}
REFUSED = {
    CLASSIC: OF_STREAMS,
    QUORUM: OF_STREAMS | {FAILOVER},
    STREAM: {PRIORITY, FAILOVER, "x-browse", "x-selector"},
}


def check_consumer_arguments(queue: Queue, arguments: Table) -> None:
    """Raise 406 for an argument that would have no effect on a queue of this type."""
    if not arguments:
        return
    kind = queue_type(queue.arguments)
    for argument in arguments:
        if argument in REFUSED[kind]:
            raise not_for_type(argument, _what(queue), kind)
    failover = arguments.get(FAILOVER, False)
    if not isinstance(failover, bool):
        raise PreconditionFailed(
            f"invalid arg '{FAILOVER}' for {_what(queue)}: {{unacceptable_type,{type_name(failover)}}}"
        )


def consumer_priority(queue: Queue, arguments: Table) -> int:
    priority = arguments.get(PRIORITY, 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise PreconditionFailed(
            f"invalid arg '{PRIORITY}' for {_what(queue)}: \"expected integer, got {type_name(priority)}\""
        )
    if abs(priority) >= 2**31:
        raise PreconditionFailed(f"invalid arg '{PRIORITY}' for {_what(queue)}: {priority} has over 32 bits")
    return int(priority)


def _what(queue: Queue) -> str:
    return f"queue '{queue.name}' in vhost '{queue.vhost}'"
