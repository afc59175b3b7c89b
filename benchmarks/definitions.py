"""Declares a second through one node of a cluster, and how long another node takes to load 10,000 queues.

It starts an etcd and brokers in a directory of their own, and stops them again. The client runs in this
process: without `--cluster` the same load goes to a broker that is alone, which says what the client can do.

    python benchmarks/definitions.py --cluster
    python benchmarks/definitions.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aio_pika

LOADS = ((1, 500), (32, 3_000), (200, 6_500))  # so many connections, so many queues: 10,000 together


@contextmanager
def broker(directory: Path, name: str, *arguments: str) -> Iterator[tuple[str, Path]]:
    """A broker's URL, and its log."""
    log = directory / f"{name}.log"
    flags = ["--port", "0", "--http-port", "-1", "--data-dir", str(directory / name), *arguments]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "warren", "serve", *flags],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            sys.exit(log.read_text())
        told = dict(word.partition("=")[::2] for word in ready.split()[1:])
        yield f"amqp://guest:guest@{told['amqp']}/", log
    finally:
        process.terminate()
        process.wait()


async def declare(url: str, connections: int, queues: int) -> None:
    opened = [await aio_pika.connect(url) for _ in range(connections)]
    channels = [await connection.channel() for connection in opened]
    numbers, took = iter(range(queues)), []

    async def work(channel: aio_pika.abc.AbstractChannel) -> None:
        for number in numbers:
            began = time.perf_counter()
            await channel.declare_queue(f"{connections}-{number}", durable=True)
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work(channel) for channel in channels))
    rate = queues / (time.perf_counter() - began)
    took.sort()
    median, late = (1000 * took[int(len(took) * share)] for share in (0.5, 0.99))
    print(f"{connections:4} at once: {rate:6.0f} declares/s, p50 {median:.1f} ms, p99 {late:.1f} ms")
    for connection in opened:
        await connection.close()


def loaded_ms(log: Path) -> int:
    """How long a node took to load all definitions, as it says itself."""
    lines = (json.loads(line) for line in log.read_text().splitlines())
    return next(int(line["ms"]) for line in lines if line["event"] == "definitions loaded from etcd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cluster", action="store_true", help="two nodes and an etcd")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        first = ("--cluster", "bench", "--node", "a", "--etcd", "local") if wanted.cluster else ()
        with broker(directory, "a", *first) as (url, log):
            for connections, queues in LOADS:
                asyncio.run(declare(url, connections, queues))
            if wanted.cluster:
                lines = (json.loads(line) for line in log.read_text().splitlines())
                etcd = next(line["endpoint"] for line in lines if line["event"] == "etcd runs here")
                with broker(directory, "b", "--cluster", "bench", "--node", "b", "--etcd", etcd) as (
                    _,
                    other,
                ):
                    print(f"another node loads {sum(n for _, n in LOADS)} queues in {loaded_ms(other)} ms")


if __name__ == "__main__":
    main()
