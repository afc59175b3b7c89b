"""How long a broker takes from its start until it is ready, with very many queues or bindings.

A data directory is made by a broker in a process of its own, which is then killed with `kill -9`, or stopped.
Each durable queue has one persistent message. What is measured is the time from the start of `warren serve`
on that directory to its line `ready`. Rounds take turns, and all of them are shown, with the load beside:
what else runs takes its part of the cores.

    python benchmarks/start.py                    # 50,000 queues and 100,000 bindings, three rounds
    python benchmarks/start.py --queues 5000 --bindings 10000 --rounds 1
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def make(directory: Path, definitions: Callable[[int], Definitions], count: int, *, killed: bool) -> None:
    asyncio.run(_make(directory, definitions(count), killed=killed))


async def _make(directory: Path, definitions: Definitions, *, killed: bool) -> None:
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
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    await broker.stop()


async def _safe(broker: warren.Broker) -> None:
    safe = asyncio.get_running_loop().create_future()
    broker.store.when_safe(safe.set_result)
    await safe


# --- measuring ---


@contextmanager
def started(directory: Path) -> Iterator[float]:
    """A broker on this directory, and after how many seconds it was ready."""
    command = [sys.executable, "-m", "warren", "serve", "--port", "0", "--http-port", "-1"]
    begin = time.monotonic()
    with subprocess.Popen(
        [*command, "--data-dir", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as broker:
        assert broker.stdout is not None, "it is a pipe"
        line = broker.stdout.readline()
        seconds = time.monotonic() - begin
        if not line.startswith(b"ready"):
            raise SystemExit("the broker did not start")
        try:
            yield seconds
        finally:
            broker.terminate()
            broker.wait(STOP_SECONDS_MAX)


def measure(directory: Path, definitions: Callable[[int], Definitions], count: int, *, killed: bool) -> float:
    shutil.rmtree(directory, ignore_errors=True)
    maker = multiprocessing.Process(
        target=make, args=(directory, definitions, count), kwargs={"killed": killed}
    )
    maker.start()
    maker.join()
    with started(directory) as seconds:
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=50_000)
    parser.add_argument("--bindings", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where data directories are made; a temporary one")
    wanted = parser.parse_args()
    loads: list[tuple[str, Callable[[int], Definitions], int, bool]] = [
        (f"{wanted.queues:,} queues, after kill -9", queues, wanted.queues, True),
        (f"{wanted.queues:,} queues, after a clean stop", queues, wanted.queues, False),
        (f"{wanted.bindings:,} bindings, after kill -9", bindings, wanted.bindings, True),
    ]
    with tempfile.TemporaryDirectory(dir=wanted.directory) as place:
        for number in range(wanted.rounds):
            for name, definitions, count, killed in loads:
                if count:
                    seconds = measure(Path(place) / "data", definitions, count, killed=killed)
                    load = os.getloadavg()[0]
                    print(f"round {number + 1}  {name:<40} {seconds:6.2f} s   load {load:.1f}", flush=True)


if __name__ == "__main__":
    main()
