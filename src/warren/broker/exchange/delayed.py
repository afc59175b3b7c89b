"""x-delayed-message: messages wait until they are due, and are then routed as by the type in
`x-delayed-type`.

The header `x-delay` says for how many milliseconds a message waits, `x-deliver-at` until when: a timestamp,
or a whole number of milliseconds since 1970. It waits in a queue that belongs to the exchange. When it
leaves, its `x-delay` is made negative, so that no other delayed exchange delays it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.budget import Budget
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import INT64_MIN, Int8, Int16, Int64, OldInt64, Table, Timestamp
from warren.broker.binding import Binding, Destination
from warren.broker.clock import Clock
from warren.broker.exchange.exchange import DELAYED_TYPE, INNER_TYPE, Router

DELAY = "x-delay"
DELIVER_AT = "x-deliver-at"
DUE_MS_MAX = 2**63 - 1
SIGNED = (Int8, Int16, Int64, OldInt64)


class Delayed:
    """Routes messages that have to wait to the waiting room, and others by the inner type."""

    by_properties = True
    inner: Router  # of the type in `x-delayed-type`
    waiting_room: Destination  # the queue in which messages wait
    clock: Clock

    def __init__(self, arguments: Table) -> None:
        inner = arguments.get(INNER_TYPE)
        if not isinstance(inner, str):
            raise PreconditionFailed(f"invalid arg '{INNER_TYPE}': the type of an exchange is needed")
        if inner == DELAYED_TYPE:
            raise PreconditionFailed(f"invalid arg '{INNER_TYPE}': '{inner}' cannot be in itself")
        self.inner_type = inner

    def bind(self, binding: Binding) -> None:
        self.inner.bind(binding)

    def unbind(self, binding: Binding) -> None:
        self.inner.unbind(binding)

    def route(self, routing_key: str, properties: BasicProperties, budget: Budget) -> Iterable[Destination]:
        if due_ms(properties.headers, self.clock.time_ms) > self.clock.time_ms:
            return [self.waiting_room]
        return self.inner.route(routing_key, properties, budget)


def due_ms(headers: Table | None, now_ms: int) -> int:
    """When a message that arrives now is to be routed; `now_ms`, if it does not have to wait."""
    headers = headers or {}
    at, delay = headers.get(DELIVER_AT), headers.get(DELAY)
    if isinstance(at, int) and not isinstance(at, bool):
        return min(at * 1000 if isinstance(at, Timestamp) else at, DUE_MS_MAX)
    if isinstance(delay, int) and not isinstance(delay, bool):
        return min(now_ms + delay, DUE_MS_MAX)
    return now_ms


def negative(delay: int) -> int:
    """The `x-delay` of a message whose delay is over: of the same integer type, if that can be negative."""
    value = max(-abs(delay), INT64_MIN)
    return type(delay)(value) if isinstance(delay, SIGNED) else value
