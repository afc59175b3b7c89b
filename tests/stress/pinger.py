"""Asks and answers through two queues of a broker, in a process of its own, until its standard input ends.

    python -m tests.stress.pinger HOST PORT

It says `ready` after the first round trip. Then it prints how many there were and how long they took, in
milliseconds, as JSON.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.amqp import AmqpClient
from tests.support.process import Address

WAIT_SECONDS_MAX = 60.0
ROOT = Path(__file__).parents[2]


class Trips(NamedTuple):
    trips: int
    median_ms: float
    p99_ms: float
    longest_ms: float


class Pinger:
    """`trips` when it has ended."""

    trips: Trips

    def __init__(self, address: Address) -> None:
        command = [sys.executable, "-m", "tests.stress.pinger", address.host, str(address.port)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self) -> None:
        out, _ = self.process.communicate(timeout=WAIT_SECONDS_MAX)
        assert self.process.returncode == 0, out
        self.trips = Trips(**json.loads(out.splitlines()[-1]))


@contextmanager
def pinging(address: Address) -> Iterator[Pinger]:
    """Round trips in this block, the first of which is over when it begins."""
    pinger = Pinger(address)
    try:
        assert pinger.process.stdout is not None
        assert pinger.process.stdout.readline() == "ready\n"
        yield pinger
        pinger.end()
    finally:
        pinger.process.kill()
        pinger.process.communicate()


def main(host: str, port: str) -> None:
    with AmqpClient.connect(Address(host, int(port))) as client:
        client.wait_seconds_max = WAIT_SECONDS_MAX
        asking, answering = client.channel(1), client.channel(2)
        questions, answers = answering.declare().queue, asking.declare().queue
        answering.consume(questions, no_ack=True)
        asking.consume(answers, no_ack=True)
        trips: list[float] = []
        while not select.select([sys.stdin], [], [], 0)[0]:
            begin = time.monotonic()
            asking.publish("", questions, b"question")
            answering.publish("", answers, answering.expect_delivery().body)
            assert asking.expect_delivery().body == b"question"
            trips.append((time.monotonic() - begin) * 1000)
            if len(trips) == 1:
                sys.stdout.write("ready\n")
                sys.stdout.flush()
    trips.sort()
    report = Trips(len(trips), trips[len(trips) // 2], trips[len(trips) * 99 // 100], trips[-1])
    sys.stdout.write(json.dumps(report._asdict()) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
