"""`warren perf`: the arguments of the load tool."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import click

from warren.cli.numbers import UINT16_MAX, AmqpUri, Whole, count, positive, seconds
from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.perf.churn import PAIRS, run_churn
from warren.perf.connections import run_connections
from warren.perf.frames import STAMP_BYTES
from warren.perf.results import ConnectionsResult, LoadResult
from warren.perf.screen import Screen, Show
from warren.perf.stream import StreamPlan, run_stream
from warren.perf.throughput import Plan, run_throughput
from warren.perf.topology import Layout

URI_DEFAULT = "amqp://guest:guest@127.0.0.1:5672/"
BODY_BYTES_MAX = 128 * 1024 * 1024
ACK_EVERY_DEFAULT = 100
EXIT_FAILURE, EXIT_INTERRUPTED = 1, 130

Work: TypeAlias = Callable[[Show], LoadResult]
Command: TypeAlias = Callable[..., Any]

prefetch_count = Whole(0, UINT16_MAX)
body_size = Whole(0, BODY_BYTES_MAX)

uri_option = click.option("--uri", type=AmqpUri(), default=URI_DEFAULT, show_default=True, help="the broker")
json_option = click.option("--json", "as_json", is_flag=True, help="print one JSON object and nothing else")
size_option = click.option(
    "--size", type=body_size, default=16, metavar="BYTES", help="the size of a message's body (16)"
)
durable_option = click.option("--durable", is_flag=True, help="queues survive a restart")
seconds_option = click.option("--seconds", type=seconds, default=10, help="how long to measure (10)")


def load_options(command: Command) -> Command:
    """Add the options that `throughput` and `latency` share."""
    shared = [
        click.option(
            "--confirm",
            type=count,
            default=0,
            help="unconfirmed messages a publisher may have (0: no confirms)",
        ),
        click.option(
            "--prefetch",
            type=prefetch_count,
            default=1000,
            help="unacked messages a consumer may have (1000; 0: no limit)",
        ),
        size_option,
        click.option("--persistent", is_flag=True, help="messages survive a restart if their queue does"),
        durable_option,
        click.option(
            "--exchange",
            default="",
            metavar="NAME",
            help="publish through this exchange; queues are bound to it by their names",
        ),
        click.option(
            "--queue",
            metavar="NAME",
            help="the queue's name, or how the names of several queues begin (a random name)",
        ),
        seconds_option,
        click.option("--warmup", type=seconds, default=1, help="how long to run before measuring (1)"),
        uri_option,
        json_option,
    ]
    for option in reversed(shared):
        command = option(command)
    return command


@click.group("perf", no_args_is_help=True)
def perf() -> None:
    """Load any AMQP 0-9-1 broker and measure it."""


@perf.command("throughput")
@click.option("--publishers", type=count, default=1, help="connections that publish (1)")
@click.option("--consumers", type=count, default=1, help="connections that consume (1)")
@click.option(
    "--queues", type=positive, default=1, help="queues, shared out among publishers and consumers in turn (1)"
)
@click.option("--rate", type=count, default=0, help="messages a second by all publishers (0: no limit)")
@click.option(
    "--ack-every", type=count, help="messages to one ack; 0 for auto-ack (100, or --prefetch if less)"
)
@load_options
def throughput(uri: Uri, *, as_json: bool, **options: Any) -> int:
    """Publish and consume as fast as the broker lets us."""
    plan = plan_of(**options)
    return _run(as_json, lambda show: run_throughput(uri, plan, show))


@perf.command("latency")
@click.option("--rate", type=positive, default=2000, help="messages a second (2000)")
@click.option("--ack-every", type=count, default=1, help="messages to one ack; 0 for auto-ack (1)")
@load_options
def latency(uri: Uri, *, as_json: bool, **options: Any) -> int:
    """Send by one publisher at a steady rate to one consumer: how long a message takes."""
    if options["size"] < STAMP_BYTES:
        raise click.UsageError(f"--size must be {STAMP_BYTES} or more: the time is in the body")
    plan = plan_of(**options)
    return _run(as_json, lambda show: run_throughput(uri, plan, show))


@perf.command("stream")
@click.option("--messages", type=positive, default=1_000_000, help="how many messages (1000000)")
@click.option("--readers", type=positive, default=1, help="consumers that each read all messages (1)")
@size_option
@click.option("--confirm", type=positive, default=1000, help="unconfirmed messages (1000)")
@click.option("--prefetch", type=Whole(1, UINT16_MAX), default=1000, help="unacked messages (1000)")
@click.option("--ack-every", type=positive, default=100, help="messages to one ack (100)")
@uri_option
@json_option
def stream(
    uri: Uri,
    *,
    as_json: bool,
    messages: int,
    readers: int,
    size: int,
    confirm: int,
    prefetch: int,
    ack_every: int,
) -> int:
    """Fill a stream, with confirms, and read it from its first offset."""
    plan = StreamPlan(
        messages=messages,
        readers=readers,
        body_bytes=size,
        window=confirm,
        ack_every=_ack_every(ack_every, prefetch),
        prefetch=prefetch,
    )
    return _run(as_json, lambda show: run_stream(uri, plan, show))


@perf.command("connections")
@click.argument("number", type=positive, metavar="N")
@click.option("--hold", type=seconds, default=0, help="how long to keep them open (0)")
@click.option("--parallel", type=positive, default=8, help="how many to open at once (8)")
@uri_option
@json_option
def connections(uri: Uri, *, as_json: bool, number: int, hold: float, parallel: int) -> int:
    """Open N connections with a channel each, and hold them."""
    return _run(as_json, lambda show: run_connections(uri, number, parallel=parallel, hold_s=hold, show=show))


@perf.command("churn")
@click.argument("of", type=click.Choice(list(PAIRS)))
@click.option("--parallel", type=positive, default=1, help="how many connections do so (1)")
@durable_option
@seconds_option
@uri_option
@json_option
def churn(uri: Uri, *, as_json: bool, of: str, parallel: int, durable: bool, seconds: float) -> int:
    """Make and unmake the same over and over: open and close, declare and delete, bind and unbind."""
    return _run(
        as_json,
        lambda show: run_churn(uri, of, parallel=parallel, durable=durable, seconds=seconds, show=show),
    )


def _run(as_json: bool, work: Work) -> int:
    """Run the load and show its result. Return 1 if the run failed."""
    screen = Screen(sys.stdout, as_json=as_json)
    try:
        result = work(screen.show)
    except ClientError as error:
        return _fail(screen, str(error))
    except KeyboardInterrupt:
        _fail(screen, "interrupted before there was anything to measure")
        return EXIT_INTERRUPTED
    screen.result(result)
    if isinstance(result, ConnectionsResult) and result.error:
        return _fail(screen, f"{result.failed + result.lost} connections failed: {result.error}")
    return 0


def _fail(screen: Screen, reason: str) -> int:
    screen.clear()
    sys.stderr.write(f"warren perf: {reason}\n")
    return EXIT_FAILURE


def plan_of(
    *,
    confirm: int,
    prefetch: int,
    size: int,
    persistent: bool,
    durable: bool,
    exchange: str,
    queue: str | None,
    seconds: float,
    warmup: float,
    rate: int,
    ack_every: int | None,
    publishers: int = 1,
    consumers: int = 1,
    queues: int = 1,
) -> Plan:
    """The plan for the options of `throughput` or `latency`; options that conflict are a `UsageError`."""
    if not publishers and not consumers:
        raise click.UsageError("neither --publishers nor --consumers: nothing to do")
    every = _ack_every(ack_every, prefetch)
    return Plan(
        publishers=publishers,
        consumers=consumers,
        body_bytes=size,
        persistent=persistent,
        window=confirm,
        ack_every=every,
        prefetch=prefetch if every else 0,
        rate=rate,
        seconds=seconds,
        warmup_s=warmup,
        layout=Layout(queues=queues, name=queue, exchange=exchange, durable=durable),
    )


def _ack_every(given: int | None, prefetch: int) -> int:
    if given is None:
        return min(ACK_EVERY_DEFAULT, prefetch or ACK_EVERY_DEFAULT)
    if 0 < prefetch < given:
        raise click.UsageError("--ack-every above --prefetch: the consumers would wait for ever")
    return given
