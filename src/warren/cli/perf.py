"""`warren perf`: the arguments of the load tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TypeAlias

from warren.client.errors import ClientError
from warren.client.uri import Uri, parse_uri
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
UINT16_MAX = 2**16 - 1
UINT31_MAX = 2**31 - 1
SECONDS_MAX = 366 * 24 * 3600
ACK_EVERY_DEFAULT = 100
EXIT_FAILURE, EXIT_INTERRUPTED = 1, 130

Work: TypeAlias = Callable[[argparse.Namespace, Show], LoadResult]
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def whole(low: int, high: int) -> Callable[[str], int]:
    """A function that reads a whole number in this range. argparse turns its error into exit code 2."""

    def read(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"not a whole number from {low} to {high}: {text!r}")
        return int(text)

    return read


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return value


def uri(text: str) -> Uri:
    try:
        return parse_uri(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


count = whole(0, UINT31_MAX)
positive = whole(1, UINT31_MAX)
prefetch_count = whole(0, UINT16_MAX)
body_size = whole(0, BODY_BYTES_MAX)


def register(subparsers: Subparsers) -> None:
    perf = subparsers.add_parser(
        "perf", help="load any AMQP 0-9-1 broker and measure it", description=__doc__
    )
    commands = perf.add_subparsers(metavar="COMMAND", required=True)
    _add_throughput(commands)
    _add_latency(commands)
    _add_stream(commands)
    _add_connections(commands)
    _add_churn(commands)


def _add_command(commands: Subparsers, name: str, about: str, work: Work) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=about)
    parser.add_argument("--uri", type=uri, default=URI_DEFAULT, help="the broker (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=lambda arguments: _run(parser, work, arguments))
    return parser


def _add_throughput(commands: Subparsers) -> None:
    about = "publish and consume as fast as the broker lets us"
    parser = _add_command(commands, "throughput", about, _throughput)
    add = parser.add_argument
    add("--publishers", type=count, default=1, metavar="N", help="connections that publish (1)")
    add("--consumers", type=count, default=1, metavar="N", help="connections that consume (1)")
    add(
        "--queues",
        type=positive,
        default=1,
        metavar="N",
        help="queues, shared out among publishers and consumers in turn (1)",
    )
    add(
        "--rate", type=count, default=0, metavar="N", help="messages a second by all publishers (0: no limit)"
    )
    add(
        "--ack-every",
        type=count,
        metavar="N",
        help="messages to one ack; 0 for auto-ack (100, or --prefetch if less)",
    )
    _add_load(parser)


def _add_latency(commands: Subparsers) -> None:
    about = "one publisher at a steady rate and one consumer: how long a message takes"
    parser = _add_command(commands, "latency", about, _latency)
    add = parser.add_argument
    add("--rate", type=positive, default=2000, metavar="N", help="messages a second (2000)")
    add("--ack-every", type=count, default=1, metavar="N", help="messages to one ack; 0 for auto-ack (1)")
    parser.set_defaults(publishers=1, consumers=1, queues=1)
    _add_load(parser)


def _add_stream(commands: Subparsers) -> None:
    about = "fill a stream, with confirms, and read it from its first offset"
    parser = _add_command(commands, "stream", about, _stream)
    add = parser.add_argument
    add("--messages", type=positive, default=1_000_000, metavar="N", help="how many messages (1000000)")
    add("--readers", type=positive, default=1, metavar="N", help="consumers that each read all messages (1)")
    add("--size", type=body_size, default=16, metavar="BYTES", help="the size of a message's body (16)")
    add("--confirm", type=positive, default=1000, metavar="N", help="unconfirmed messages (1000)")
    add("--prefetch", type=whole(1, UINT16_MAX), default=1000, metavar="N", help="unacked messages (1000)")
    add("--ack-every", type=positive, default=100, metavar="N", help="messages to one ack (100)")


def _add_load(parser: argparse.ArgumentParser) -> None:
    """Add the options that `throughput` and `latency` share."""
    add = parser.add_argument
    add(
        "--confirm",
        type=count,
        default=0,
        metavar="N",
        help="unconfirmed messages a publisher may have (0: no confirms)",
    )
    add(
        "--prefetch",
        type=prefetch_count,
        default=1000,
        metavar="N",
        help="unacked messages a consumer may have (1000; 0: no limit)",
    )
    add("--size", type=body_size, default=16, metavar="BYTES", help="the size of a message's body (16)")
    add("--persistent", action="store_true", help="messages survive a restart if their queue does")
    add("--durable", action="store_true", help="queues survive a restart")
    add("--exchange", default="", help="publish through this exchange; queues are bound to it by their names")
    add("--queue", help="the queue's name, or how the names of several queues begin (a random name)")
    add("--seconds", type=seconds, default=10, help="how long to measure (10)")
    add("--warmup", type=seconds, default=1, metavar="SECONDS", help="how long to run before measuring (1)")


def _add_connections(commands: Subparsers) -> None:
    about = "open connections with a channel each, and hold them"
    parser = _add_command(commands, "connections", about, _connections)
    add = parser.add_argument
    add("count", type=positive, metavar="N", help="how many connections")
    add("--hold", type=seconds, default=0, metavar="SECONDS", help="how long to keep them open (0)")
    add("--parallel", type=positive, default=8, metavar="N", help="how many to open at once (8)")


def _add_churn(commands: Subparsers) -> None:
    about = "make and unmake the same over and over: open and close, declare and delete, bind and unbind"
    parser = _add_command(commands, "churn", about, _churn)
    add = parser.add_argument
    add("of", choices=list(PAIRS), help="what to make and unmake")
    add("--parallel", type=positive, default=1, metavar="N", help="how many connections do so (1)")
    add("--durable", action="store_true", help="queues survive a restart")
    add("--seconds", type=seconds, default=10, help="how long to measure (10)")


def _run(parser: argparse.ArgumentParser, work: Work, arguments: argparse.Namespace) -> int:
    """Run the load and show its result. Return 1 if the run failed; exit with 2 if arguments conflict."""
    screen = Screen(sys.stdout, as_json=arguments.json)
    try:
        result = work(arguments, screen.show)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
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


def _throughput(arguments: argparse.Namespace, show: Show) -> LoadResult:
    return run_throughput(arguments.uri, plan_of(arguments), show)


def _latency(arguments: argparse.Namespace, show: Show) -> LoadResult:
    if arguments.size < STAMP_BYTES:
        raise argparse.ArgumentTypeError(f"--size must be {STAMP_BYTES} or more: the time is in the body")
    return run_throughput(arguments.uri, plan_of(arguments), show)


def _stream(arguments: argparse.Namespace, show: Show) -> LoadResult:
    plan = StreamPlan(
        messages=arguments.messages,
        readers=arguments.readers,
        body_bytes=arguments.size,
        window=arguments.confirm,
        ack_every=_ack_every(arguments.ack_every, arguments.prefetch),
        prefetch=arguments.prefetch,
    )
    return run_stream(arguments.uri, plan, show)


def _connections(arguments: argparse.Namespace, show: Show) -> LoadResult:
    return run_connections(
        arguments.uri, arguments.count, parallel=arguments.parallel, hold_s=arguments.hold, show=show
    )


def _churn(arguments: argparse.Namespace, show: Show) -> LoadResult:
    return run_churn(
        arguments.uri,
        arguments.of,
        parallel=arguments.parallel,
        durable=arguments.durable,
        seconds=arguments.seconds,
        show=show,
    )


def plan_of(arguments: argparse.Namespace) -> Plan:
    if not arguments.publishers and not arguments.consumers:
        raise argparse.ArgumentTypeError("neither --publishers nor --consumers: nothing to do")
    ack_every = _ack_every(arguments.ack_every, arguments.prefetch)
    return Plan(
        publishers=arguments.publishers,
        consumers=arguments.consumers,
        body_bytes=arguments.size,
        persistent=arguments.persistent,
        window=arguments.confirm,
        ack_every=ack_every,
        prefetch=arguments.prefetch if ack_every else 0,
        rate=arguments.rate,
        seconds=arguments.seconds,
        warmup_s=arguments.warmup,
        layout=Layout(
            queues=arguments.queues,
            name=arguments.queue,
            exchange=arguments.exchange,
            durable=arguments.durable,
        ),
    )


def _ack_every(given: int | None, prefetch: int) -> int:
    if given is None:
        return min(ACK_EVERY_DEFAULT, prefetch or ACK_EVERY_DEFAULT)
    if 0 < prefetch < given:
        raise argparse.ArgumentTypeError("--ack-every above --prefetch: the consumers would wait for ever")
    return given
