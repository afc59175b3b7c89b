"""Puts the same loads on WarrenMQ and on RabbitMQ, by turns on this machine, and prints the ratios.

Both brokers are started with their defaults, on 127.0.0.1 and in directories of their own, and stopped again.
RabbitMQ takes part if Debian's package rabbitmq-server is installed. A figure is the median of the rounds.
A ratio above 1 means that WarrenMQ is better, be it more messages a second or fewer microseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
WARREN = [sys.executable, "-m", "warren"]
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 30
RUN_SECONDS_SPARE = 120
TRY_AGAIN_SECONDS = 0.25
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run of `warren perf`, and which of its figures is compared."""

    row: str  # what README's table calls it
    words: str  # the arguments of `warren perf`
    figure: str  # a key of its JSON, or a path such as `latency_us.p99`
    more_is_better: bool = True
    is_timed: bool = True  # else the run ends when all messages are through

    def ratio(self, ours: float, theirs: float) -> float:
        """How many times better `ours` is."""
        better, worse = (ours, theirs) if self.more_is_better else (theirs, ours)
        return better / worse if worse else float("inf")


# In the order of README's table.
SCENARIOS = {
    "transient-autoack-16B": Scenario(
        "transient, auto-ack, 16 B", "throughput --size 16 --ack-every 0", "consume_per_s"
    ),
    "transient-ack-16B": Scenario("transient, acked, 16 B", "throughput --size 16", "consume_per_s"),
    "transient-autoack-1KB": Scenario(
        "transient, auto-ack, 1 KB", "throughput --size 1024 --ack-every 0", "consume_per_s"
    ),
    "transient-ack-16KB": Scenario("transient, acked, 16 KB", "throughput --size 16384", "consume_per_s"),
    "persistent-confirm-16B": Scenario(
        "persistent, confirmed after the sync, 16 B",
        "throughput --size 16 --durable --persistent --confirm 1000",
        "confirm_per_s",
    ),
    "persistent-confirm-1KB": Scenario(
        "the same, 1 KB", "throughput --size 1024 --durable --persistent --confirm 1000", "confirm_per_s"
    ),
    "persistent-50-queues-256B": Scenario(
        "the same, 256 B, 50 queues, 50 publishers, 50 consumers",
        "throughput --size 256 --queues 50 --publishers 50 --consumers 50 "
        "--durable --persistent --confirm 200",
        "confirm_per_s",
    ),
    "publish-only-16B": Scenario("publish only, 16 B", "throughput --size 16 --consumers 0", "publish_per_s"),
    "4-queues-4x4-16B": Scenario(
        "4 queues, 4 publishers, 4 consumers",
        "throughput --size 16 --queues 4 --publishers 4 --consumers 4",
        "consume_per_s",
    ),
    "fan-in-64-publishers-16B": Scenario(
        "64 publishers into one consumer", "throughput --size 16 --publishers 64", "consume_per_s"
    ),
    "stream-confirm-16B": Scenario(
        "stream, confirmed after the sync, 16 B (RabbitMQ does not sync)",
        "stream --messages 300000",
        "confirm_per_s",
        is_timed=False,
    ),
    "stream-read-from-first-16B": Scenario(
        "stream, read from the first offset, 16 B", "stream --messages 300000", "read_per_s", is_timed=False
    ),
    "stream-read-from-first-1KB": Scenario(
        "the same, 1 KB", "stream --messages 100000 --size 1024", "read_per_s", is_timed=False
    ),
    "latency-p99-us-at-2000/s": Scenario(
        "p99 latency at 2,000/s", "latency --rate 2000", "latency_us.p99", more_is_better=False
    ),
    "latency-p99-us-persistent-at-1000/s": Scenario(
        "p99 latency of persistent messages, confirmed, at 1,000/s",
        "latency --rate 1000 --size 256 --durable --persistent --confirm 1000",
        "latency_us.p99",
        more_is_better=False,
    ),
}


class CompareError(Exception):
    """A broker did not start or a load did not run; the text says which and why."""


@contextlib.contextmanager
def running(
    command: Sequence[str], env: dict[str, str], log: Path, stdout: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """Run a process in a session of its own: Ctrl-C does not reach it, and its children end with it."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, env=env, stdout=stdout, stderr=errors, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def warren(directory: Path) -> Iterator[str]:
    """Run a WarrenMQ of our own; gives its URI."""
    command = [*WARREN, "serve", "--port", "0", "--http-port", "0", "--data-dir", str(directory / "data")]
    log = directory / "log"
    with running(command, dict(os.environ), log, subprocess.PIPE) as process:
        line = process.stdout.readline() if process.stdout else ""
        if not line.startswith("ready amqp="):
            raise CompareError(f"WarrenMQ did not start: {log.read_text().strip() or 'it said nothing'}")
        yield f"amqp://guest:guest@{line.split()[1].removeprefix('amqp=')}/"


@contextlib.contextmanager
def rabbitmq(directory: Path) -> Iterator[str]:
    """Run a RabbitMQ of our own, with a port mapper of our own; gives its URI."""
    port, env = free_port(), rabbitmq_environment(directory)
    env |= {"RABBITMQ_NODE_PORT": str(port), "RABBITMQ_NODENAME": f"compare{port}@localhost"}
    log = directory / "errors"
    with contextlib.ExitStack() as stack:
        stack.callback(stop_port_mapper, env)
        process = stack.enter_context(running([str(RABBITMQ)], env, log))
        wait_for_amqp(port, process, log)
        yield f"amqp://guest:guest@127.0.0.1:{port}/"


def rabbitmq_environment(directory: Path) -> dict[str, str]:
    (directory / "plugins").write_text("[].")
    return {
        **os.environ,
        "HOME": str(directory),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def stop_port_mapper(env: dict[str, str]) -> None:
    """Stop epmd, which Erlang starts as a daemon that outlives the broker."""
    epmd = shutil.which("epmd")
    if epmd:
        subprocess.run([epmd, "-kill"], env=env, capture_output=True, check=False)


def wait_for_amqp(port: int, process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise CompareError(f"RabbitMQ ended with {process.returncode}: {log.read_text().strip()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(TRY_AGAIN_SECONDS)
    raise CompareError(f"RabbitMQ does not listen after {START_SECONDS_MAX} seconds")


BROKERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[str]]] = {
    "warren": warren,
    "rabbitmq": rabbitmq,
}


def load(uri: str, scenario: Scenario, seconds: float) -> float:
    command = [*WARREN, "perf", *scenario.words.split(), "--json", "--uri", uri]
    if scenario.is_timed:
        command += ["--seconds", str(seconds)]
    limit_s = seconds + RUN_SECONDS_SPARE
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        raise CompareError(f"{scenario.words}: {done.stderr.strip()}")
    value = json.loads(done.stdout)
    for key in scenario.figure.split("."):
        value = value[key]
    return float(value)


Figures: TypeAlias = dict[str, list[float]]


def measure(uris: dict[str, str], scenario: Scenario, *, rounds: int, seconds: float) -> Figures:
    """The figure of every round, by broker. The brokers take turns, so that a slow phase of the machine hits
    both.
    """
    figures: Figures = {name: [] for name in uris}
    for _ in range(rounds):
        for name, uri in uris.items():
            figures[name].append(load(uri, scenario, seconds))
    return figures


def summary(scenario: Scenario, figures: Figures) -> dict[str, object]:
    medians = {name: statistics.median(values) for name, values in figures.items()}
    ratio = scenario.ratio(medians["warren"], medians["rabbitmq"]) if len(medians) > 1 else None
    return {
        "row": scenario.row,
        "figure": scenario.figure,
        "median": medians,
        "ratio": ratio,
        "rounds": figures,
    }


def table_line(name: str, result: dict[str, object], brokers: Sequence[str]) -> str:
    medians, ratio = result["median"], result["ratio"]
    assert isinstance(medians, dict)
    cells = "".join(f"{medians[broker]:>14,.0f}" for broker in brokers)
    return f"{name:<28}{cells}" + (f"{ratio:>9.1f}x" if isinstance(ratio, float) else "")


def compare(arguments: argparse.Namespace) -> None:
    results: dict[str, dict[str, object]] = {}
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
        uris = {}
        for broker in arguments.brokers:
            (work / broker).mkdir()
            uris[broker] = stack.enter_context(BROKERS[broker](work / broker))
        print(f"{'':<28}" + "".join(f"{broker:>14}" for broker in uris), flush=True)
        for name in arguments.only:
            scenario = SCENARIOS[name]
            figures = measure(uris, scenario, rounds=arguments.rounds, seconds=arguments.seconds)
            results[name] = summary(scenario, figures)
            print(table_line(name, results[name], list(uris)), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


def names_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {unknown[0]!r} among {', '.join(known)}")
        return names

    return read


def parse_arguments() -> argparse.Namespace:
    installed = [broker for broker in BROKERS if broker != "rabbitmq" or RABBITMQ.exists()]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--only",
        type=names_of(list(SCENARIOS)),
        default=list(SCENARIOS),
        metavar="NAME,…",
        help="these scenarios",
    )
    add("--brokers", type=names_of(installed), default=installed, metavar="NAME,…", help="these brokers")
    add("--seconds", type=float, default=4, help="how long each run measures (4)")
    add("--rounds", type=int, default=3, help="runs of each scenario on each broker (3)")
    add("--json", type=Path, metavar="FILE", help="write all figures there as well")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        compare(arguments)
    except CompareError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("compare: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
