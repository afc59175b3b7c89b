"""The options of a write, checked before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from warren.client.uri import Uri, parse_uri
from warren.pipeline.errors import PipelineError
from warren.pipeline.option_names import canonical, names_of
from warren.pipeline.publisher import WINDOW_DEFAULT

NAMES = names_of(
    "amqp", "exchange", "routingKey", "window", "mandatory", "deduplicate", "errors", "rate"
)  # fmt: skip
"""All options of a write."""

SPARKS_NAMES = names_of(
    "checkpointLocation", "asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs"
)
"""Options of a streaming query, which Spark hands to the sink as well."""

WINDOW_MAX = 1_000_000
FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where and how to publish."""

    uri: Uri
    exchange: str | None  # None: each row names its own
    routing_key: str  # for rows without one
    window: int = WINDOW_DEFAULT  # messages in flight at most, for each task
    mandatory: bool = True  # whether the broker returns messages that no queue is bound for
    deduplicate: bool = False  # whether each message gets the deduplication header
    errors: str | None = None  # a directory for rows that no queue took; None: the first ends the write
    rate: float = 0.0  # messages a second at most, for each task; 0: no limit


def read_options(given: Mapping[str, str]) -> WriteOptions:
    ours = {name: value for name, value in given.items() if name.lower() not in SPARKS_NAMES}
    options = canonical(ours, NAMES, purpose="to write", error=PipelineError)
    return WriteOptions(
        uri=_uri(options.get("amqp")),
        exchange=options.get("exchange"),
        routing_key=options.get("routingKey", ""),
        window=_window(options.get("window")),
        mandatory=_flag("mandatory", options.get("mandatory", "true")),
        deduplicate=_flag("deduplicate", options.get("deduplicate", "false")),
        errors=options.get("errors"),
        rate=_rate(options.get("rate", "0")),
    )


def _uri(text: str | None) -> Uri:
    if text is None:
        raise PipelineError("to write, option amqp must say where: amqp://user:password@host:5672/vhost")
    try:
        return parse_uri(text)
    except ValueError as error:
        raise PipelineError(f"option amqp: {error}") from error


def _window(text: str | None) -> int:
    if text is None:
        return WINDOW_DEFAULT
    if not text.isdecimal() or not 1 <= int(text) <= WINDOW_MAX:
        raise PipelineError(f"option window is a whole number from 1 to {WINDOW_MAX}, not {text!r}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in FLAGS:
        raise PipelineError(f"option {name} is true or false, not {text!r}")
    return FLAGS[text.lower()]


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < math.inf:
        raise PipelineError(f"option rate is a number of messages a second, not {text!r}")
    return rate
