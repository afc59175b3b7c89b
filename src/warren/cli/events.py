"""`warren events`: follow the events of a broker, which it writes to the stream `warren.events`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import click

from warren.amqp.errors import AmqpError
from warren.amqp.properties import decode_properties
from warren.amqp.table import Table
from warren.cli.grammar import Failed, Remote, over_http
from warren.cli.output import Printer
from warren.cli.text import cell
from warren.client.errors import ClosedByBrokerError
from warren.pipeline.consumer import ConsumingClient, Delivery

VHOST, STREAM = "/", "warren.events"
NOT_FOUND = 404
HELD_MAX = 500
HELD_BYTES_MAX = 1 << 20
WAIT_SECONDS = 1.0


@click.command("events")
@over_http
@click.option("--amqp", metavar="URI", help="where the broker speaks AMQP (as its HTTP API says)")
@click.option("--from", "start", default="next", show_default=True, help="next, last, first, or an offset")
@click.option("--event", "wanted", multiple=True, metavar="NAME", help="only events whose name begins so")
@click.option("--count", type=click.IntRange(min=1), help="end after so many events")
def events(
    remote: Remote, *, amqp: str | None, start: str, wanted: tuple[str, ...], count: int | None
) -> None:
    """Print a broker's events as they happen: queue.created, connection.opened, alarm.raised and others. The
    broker has to run with events_stream = true.
    """
    uri = replace(remote.target.amqp_uri(remote.api, amqp), vhost=VHOST)
    offset: Table = {"x-stream-offset": int(start) if start.isdecimal() else start}
    try:
        client = ConsumingClient(
            uri,
            [STREAM],
            count_max=HELD_MAX,
            bytes_max=HELD_BYTES_MAX,
            arguments=offset,
            shared_limit=False,
            product="warren events",
        )
    except ClosedByBrokerError as error:
        if error.code != NOT_FOUND:
            raise
        raise Failed(f"there is no stream '{STREAM}': start the broker with events_stream = true") from error
    try:
        _follow(client, remote.printer, wanted, count)
    finally:
        client.close()


def _follow(client: ConsumingClient, printer: Printer, wanted: tuple[str, ...], count: int | None) -> None:
    printed = 0
    while True:
        client.gather(WAIT_SECONDS)
        held = client.first(len(client.held))
        for delivery in held:
            if not wanted or delivery.message.key.startswith(wanted):
                printer.out.write(line_of(delivery, as_json=printer.as_json) + "\n")
                printed += 1
            if printed == count:
                return
        printer.out.flush()
        client.settle(len(held))


def line_of(delivery: Delivery, *, as_json: bool) -> str:
    """An event's body is a JSON object, written by the broker."""
    try:
        seconds = decode_properties(delivery.message.properties).timestamp or 0
        fields = json.loads(delivery.message.body)
    except (AmqpError, ValueError):
        seconds, fields = 0, {"body": delivery.message.body.hex()}
    time = datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    if as_json:
        return json.dumps({"time": time, "event": delivery.message.key, **fields}, ensure_ascii=False)
    return " ".join(
        [time, delivery.message.key, *(f"{name}={cell(value)}" for name, value in fields.items())]
    )
