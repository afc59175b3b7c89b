"""How long a broker takes from its start until it is ready, with very many queues or bindings.

A broker in a process of its own makes the definitions, with a persistent message in each durable queue, and
is killed with `kill -9`. Then `warren serve` starts on that directory again and again, and is stopped or
killed in turn. Measured are the time from its start to its line `ready`, and how much processor time it used
until then. The machine's load is printed as well, since other processes take their part of the cores.

    python benchmarks/start.py                    # 50,000 queues and 100,000 bindings, three rounds
    python benchmarks/start.py --queues 5000 --bindings 10000 --rounds 1
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import warren
from warren import commands
from warren.broker.message import Message

QUEUES_OF_BINDINGS = 1_000
EXECUTED_A_TURN = 500
STOP_SECONDS_MAX = 120
DURABLE_PROPERTIES = b"\x10\x00\x02"  # delivery_mode = 2

Definitions = Iterator[commands.Command]


def queues(count: int) -> Definitions:
    for number in range(count):
        yield commands.DeclareQueue(vhost="/", name=f"queue-{number}", durable=True)


def bindings(count: int) -> Definitions:
    yield commands.DeclareExchange(vhost="/", name="events", type="topic")
    yield from queues(min(count, QUEUES_OF_BINDINGS))
    for number in range(count):
        yield commands.Bind(
            vhost="/",
            source="events",
            destination=f"queue-{number % QUEUES_OF_BINDINGS}",
            to_queue=True,
            routing_key=f"shop.order.{number}",
        )


# --- making a data directory ---


def make(directory: Path, definitions: Definitions) -> None:
    """Make a data directory with these definitions, in a process that kills itself when all is safe."""
    maker = multiprocessing.get_context("fork").Process(
        target=lambda: asyncio.run(_make(directory, definitions))
    )
    maker.start()
    maker.join()


async def _make(directory: Path, definitions: Definitions) -> None:
    broker = warren.Broker(port=0, data_dir=directory)
    await broker.start()
    for number, command in enumerate(definitions):
        broker.node.execute(command)
        if isinstance(command, commands.DeclareQueue):
            queue = broker.node.vhosts["/"].queues[command.name]
            queue.publish(Message(b"\0", b"\0", DURABLE_PROPERTIES, b"x" * 100, True, 0))
        if number % EXECUTED_A_TURN == 0:
            await _safe(broker)
    await _safe(broker)
    os.kill(os.getpid(), signal.SIGKILL)


async def _safe(broker: warren.Broker) -> None:
    safe = asyncio.get_running_loop().create_future()
    broker.store.safety.when_safe(safe.set_result)
    await safe


# --- measuring ---


def start(directory: Path, *, then: signal.Signals) -> tuple[float, float]:
    """Start a broker on this directory, and end it with a signal. Return after how many seconds it was ready,
    and how much processor time it had used by then.
    """
    command = [sys.executable, "-m", "warren", "serve", "--port", "0", "--http-port", "-1"]
    begin = time.monotonic()
    with subprocess.Popen(
        [*command, "--data-dir", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as broker:
        assert broker.stdout is not None, "it is a pipe"
        line = broker.stdout.readline()
        seconds = time.monotonic() - begin, worked_seconds(broker.pid)
        broker.send_signal(then)
        broker.wait(STOP_SECONDS_MAX)
    if not line.startswith(b"ready"):
        raise SystemExit("the broker did not start")
    return seconds


def worked_seconds(process: int) -> float:
    """The processor time that a process has used so far, in user mode and in the kernel."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(what: str, seconds: tuple[float, float]) -> None:
    print(
        f"{what:<45} {seconds[0]:6.2f} s, {seconds[1]:5.2f} s of work, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=50_000)
    parser.add_argument("--bindings", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where to make the data; a temporary one if left out")
    wanted = parser.parse_args()
    loads = {
        f"{wanted.queues:,} queues": queues(wanted.queues),
        f"{wanted.bindings:,} bindings": bindings(wanted.bindings),
    }
    with tempfile.TemporaryDirectory(dir=wanted.directory) as place:
        for number, (name, definitions) in enumerate(loads.items()):
            directory = Path(place) / str(number)
            make(directory, definitions)
            for _ in range(wanted.rounds):
                show(f"{name}, after kill -9", start(directory, then=signal.SIGTERM))
                show(f"{name}, after a clean stop", start(directory, then=signal.SIGKILL))


if __name__ == "__main__":
    main()
