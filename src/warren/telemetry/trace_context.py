"""The trace that a message belongs to: the header `traceparent`, as W3C Trace Context defines it.

00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
version, trace id, the id of the span that published the message, flags
"""

from __future__ import annotations

import re
from typing import NamedTuple

from warren.amqp.table import decode_value
from warren.amqp.traits import header_of
from warren.broker.message import Message

HEADER = b"traceparent"
TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
FIRST_VERSION, NO_VERSION = "00", "ff"
SAMPLED = 0x01


class TraceContext(NamedTuple):
    trace_id: int
    span_id: int  # of the publisher's span


def sampled_context(message: Message) -> TraceContext | None:
    """The trace of a message whose publisher has it sampled; None for all other messages."""
    encoded = header_of(message.properties, HEADER)
    value = None if encoded is None else decode_value(encoded)
    found = TRACEPARENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == NO_VERSION or (version == FIRST_VERSION and more):
        return None
    context = TraceContext(int(trace, 16), int(span, 16))
    return context if all(context) and int(flags, 16) & SAMPLED else None
