"""What watching a broker costs: the HTTP API with very many queues, while messages go through.

A broker with many queues takes a load by `warren perf`, by turns alone and watched: Prometheus scrapes every
second, an operator looks at the overview and the longest queues as `warren top` does, and five tools page
through all queues. The tools take processor time as well, which a machine with two cores cannot spare. So in
a third turn they watch another broker, which is idle. Printed are the rates, and how much of them is left
while the broker is watched: of the rate alone, and of the rate while the tools watch the other one.

With --turns, the broker runs in this process without any load, and every endpoint that lists things is asked
again and again. Printed is for each how long it took, and the longest turn of the event loop meanwhile: no
request should hold the loop for more than 10 ms.

    python benchmarks/operators.py                         10,000 queues, three rounds
    python benchmarks/operators.py --turns
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from asyncio.subprocess import PIPE
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

import warren
from warren import commands
from warren.server.collector import begin_process, tune_process

AUTHORIZATION = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
LOADS = {
    "transient": ["--prefetch", "1000"],
    "persistent": ["--persistent", "--durable", "--confirm", "1000"],
}
PAGE_SIZE = 100
PAGERS = 5
MADE_A_TURN = 500
LISTS = (
    "/api/queues",
    "/api/queues?page=1&page_size=100",
    "/api/queues?page=50&page_size=100&sort=messages&sort_reverse=true",
    "/api/queues?page=1&name=9&use_regex=true",
    "/api/overview",
    "/api/exchanges",
    "/api/bindings",
    "/api/definitions",
    "/metrics",
    "/metrics/per-object",
)


def queue_commands(count: int) -> Iterator[commands.Command]:
    for number in range(count):
        yield commands.DeclareQueue(vhost="/", name=f"queue-{number}", durable=True)


# --- watchers ---


def ask(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, headers=AUTHORIZATION)) as answer:  # noqa: S310
        answer.read()


@contextmanager
def watched(url: str, asked: argparse.Namespace) -> Iterator[None]:
    """Scrape, look and page in a process of its own, until the block ends."""
    words = [f"--watch={url}", f"--queues={asked.queues}", f"--page-seconds={asked.page_seconds}"]
    process = subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()  # the tools have begun
        yield
    finally:
        process.kill()
        process.wait()


def watch(url: str, asked: argparse.Namespace) -> None:
    pages = max(1, asked.queues // PAGE_SIZE)
    threads = [
        threading.Thread(target=repeat, args=(1.0, [f"{url}/metrics"])),
        threading.Thread(
            target=repeat,
            args=(1.0, [f"{url}/api/overview", f"{url}/api/queues?page=1&sort=messages&sort_reverse=true"]),
        ),
    ]
    for pager in range(PAGERS):
        urls = [
            f"{url}/api/queues?page={1 + (page + pager * pages // PAGERS) % pages}&page_size={PAGE_SIZE}"
            for page in range(pages)
        ]
        threads.append(threading.Thread(target=repeat, args=(asked.page_seconds * len(urls), urls)))
    for thread in threads:
        thread.start()
    print("watching", flush=True)
    for thread in threads:
        thread.join()


def repeat(seconds: float, urls: list[str]) -> None:
    """Ask for all URLs within so many seconds, evenly, again and again."""
    while True:
        for url in urls:
            due = time.monotonic() + seconds / len(urls)
            ask(url)
            time.sleep(max(0.0, due - time.monotonic()))


# --- the load ---


def rates(asked: argparse.Namespace) -> None:
    with running(asked.queues) as broker, running(asked.queues) as other:
        for load, flags in LOADS.items():
            compare(load, flags, broker, other, asked)


@contextmanager
def running(queues: int) -> Iterator[dict[str, str]]:
    """A broker with so many queues; its addresses by name."""
    with tempfile.TemporaryDirectory() as directory:
        make_queues(Path(directory) / "data", queues)
        command = ["serve", "--port=0", "--http-port=0", f"--data-dir={directory}/data", "--log-level=error"]
        broker = subprocess.Popen(
            [sys.executable, "-m", "warren", *command], stdout=subprocess.PIPE, text=True
        )
        try:
            assert broker.stdout is not None
            yield dict(word.split("=") for word in broker.stdout.readline().split()[1:])
        finally:
            broker.kill()
            broker.wait()


def make_queues(directory: Path, count: int) -> None:
    async def make() -> None:
        async with warren.Broker(port=0, data_dir=directory) as broker:
            for number, command in enumerate(queue_commands(count)):
                broker.execute(command)
                if number % MADE_A_TURN == 0:
                    await asyncio.sleep(0)

    asyncio.run(make())


def compare(
    load: str, flags: list[str], broker: dict[str, str], other: dict[str, str], asked: argparse.Namespace
) -> None:
    alone: list[float] = []
    elsewhere: list[float] = []
    seen: list[float] = []
    for _ in range(asked.rounds):
        alone.append(rate(broker["amqp"], flags, asked.seconds))
        for watched_one, found in ((other, elsewhere), (broker, seen)):
            with watched(f"http://{watched_one['http']}", asked):
                found.append(rate(broker["amqp"], flags, asked.seconds))
    without, beside, with_it = map(statistics.median, (alone, elsewhere, seen))
    print(
        f"{load:<12} alone {without:>11,.0f}/s, tools elsewhere {beside:>11,.0f}/s, "
        f"watched {with_it:>11,.0f}/s: "
        f"{with_it / without:.1%} of the first is left, {with_it / beside:.1%} of the second",
        flush=True,
    )


def rate(address: str, flags: list[str], seconds: float) -> float:
    words = [sys.executable, "-m", "warren", "perf", "throughput", "--json", f"--seconds={seconds}", *flags]
    done = subprocess.run(
        [*words, f"--uri=amqp://guest:guest@{address}/"], check=True, capture_output=True, text=True
    )
    return float(json.loads(done.stdout)["consume_per_s"])


# --- the turns ---


class Turns:
    """Measures the turns of the loop it runs on, without end."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def measure(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now


async def turns(asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with warren.Broker(port=0, http_port=0, data_dir=directory) as broker:
            for number, command in enumerate(queue_commands(asked.queues)):
                broker.execute(command)
                if number % MADE_A_TURN == 0:
                    await asyncio.sleep(0)
            asker = await asyncio.create_subprocess_exec(
                sys.executable, "-c", ASK, AUTHORIZATION["Authorization"], stdin=PIPE, stdout=PIPE
            )
            measured = Turns()
            measuring = asyncio.create_task(measured.measure())
            for path in LISTS:
                measured.longest = 0.0
                url = f"http://{broker.services['http'].address}{path}"
                times = [await ask_apart(asker, url) for _ in range(asked.rounds)]
                print(
                    f"{path:<70} {statistics.median(times) * 1000:>7,.0f} ms, "
                    f"longest turn {measured.longest * 1000:>5.1f} ms",
                    flush=True,
                )
            measuring.cancel()
            asker.terminate()
            await asker.wait()


async def ask_apart(asker: asyncio.subprocess.Process, url: str) -> float:
    """Ask in another process, so that its work is not in our turns. It runs already: to start one takes as
    long as the longest turns.
    """
    assert asker.stdin is not None, "it is a pipe"
    assert asker.stdout is not None, "it is a pipe"
    asker.stdin.write(f"{url}\n".encode())
    status, seconds = (await asker.stdout.readline()).decode().split()
    assert status == "200", f"{url}: {status}"
    return float(seconds)


ASK = """
import sys, time, urllib.request
for line in sys.stdin:
    request = urllib.request.Request(line.strip(), headers={"Authorization": sys.argv[1]})
    begun = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        answer.read()
        print(answer.status, time.perf_counter() - begun, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument(
        "--page-seconds", type=float, default=1.0, help="how often each of five tools asks for a page"
    )
    parser.add_argument("--turns", action="store_true", help="measure turns of the event loop instead")
    parser.add_argument("--watch", metavar="URL", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.watch:
        watch(asked.watch, asked)
    elif asked.turns:
        begin_process()
        tune_process()
        uvloop.run(turns(asked))
    else:
        rates(asked)


if __name__ == "__main__":
    main()
