"""Publishing a message over the HTTP API, for `warren publish` and `warren exchanges publish`."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any

import click

from warren.cli.grammar import Failed, Remote
from warren.cli.values import KeyValue, MessageProperty

DEFAULT_EXCHANGE = "amq.default"
"""How the HTTP API calls the exchange without a name."""

Pairs = tuple[tuple[str, object], ...]


def publishing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of a command that publishes."""
    command = click.option(
        "--header", "headers", type=KeyValue(), multiple=True, metavar="KEY=VALUE", help="a header"
    )(command)
    command = click.option(
        "--property",
        "properties",
        type=MessageProperty(),
        multiple=True,
        metavar="KEY=VALUE",
        help="a property, such as delivery_mode=2 or content_type=text/plain",
    )(command)
    command = click.argument("payload", required=False, metavar="[PAYLOAD]")(command)
    return click.argument("routing_key", metavar="ROUTING_KEY")(command)


def publish_message(
    remote: Remote, exchange: str, routing_key: str, payload: str | None, *, properties: Pairs, headers: Pairs
) -> None:
    body = sys.stdin.buffer.read() if payload is None else payload.encode("utf-8", "surrogateescape")
    table: dict[str, Any] = dict(properties)
    if headers:
        table["headers"] = dict(headers)
    content = {"properties": table, "routing_key": routing_key, **_encoded(body)}
    answer = remote.api.post(
        "exchanges", remote.vhost, exchange or DEFAULT_EXCHANGE, "publish", content=content
    )
    if remote.printer.as_json:
        remote.printer.json(answer)
    if not answer.get("routed"):
        raise Failed("the message was published, but no queue is bound for it")
    remote.printer.said("message published")


def _encoded(body: bytes) -> dict[str, str]:
    try:
        return {"payload": body.decode(), "payload_encoding": "string"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(body).decode(), "payload_encoding": "base64"}
