"""How long the queues of a node are without service when that node is killed, or stops.

An etcd and three brokers run as processes on this machine. Many replicated queues are declared at one broker,
which leads them, and are filled with small persistent messages. Then that broker is killed with `kill -9`,
or asked to stop. A watch of etcd tells when other nodes are decided to lead; clients at these ask for the
first and for the last queue of each shard, over and over, until they are served; one more client publishes
to one queue all the time, with confirms, at whatever node leads it.

    python benchmarks/takeover.py                                  # 1,000 queues, 10 million messages
    python benchmarks/takeover.py --queues 200 --messages 200000
    python benchmarks/takeover.py --end stop                       # a hand-over
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import pika
import pika.exceptions

from warren.amqp.methods import BasicAck, BasicPublish, ConfirmSelect, ConfirmSelectOk, decode_method
from warren.client.connection import ClientConnection
from warren.client.dialogue import Dialogue, Request
from warren.client.frames import CHANNEL, FRAME_MAX, method_frame
from warren.client.inbox import Frame
from warren.client.uri import parse_uri
from warren.cluster.config import read_record
from warren.cluster.definitions.definition import read_definition
from warren.perf.frames import publish_frames
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.cluster.local_etcd import LocalEtcd
from warren.server.log import get_logger

NAMES = "abc"
PREFIX = "/warren/takeover/"
CONFIG = 'cluster_replicate = "durable"\n'
A_BATCH = 500  # messages that go to a queue at a time
WINDOW = 20_000  # messages that may be unconfirmed
WAIT_SECONDS = 300.0
LOCKED = 405
QUEUE = "queue-{}"


class Brokers:
    """The processes, by name."""

    def __init__(self, directory: Path, etcd: str) -> None:
        self.directory = directory
        self.etcd = etcd
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.urls: dict[str, str] = {}

    def start(self) -> None:
        config = self.directory / "warren.toml"
        config.write_text(CONFIG)
        for name in NAMES:
            where = ["--data-dir", str(self.directory / name), "--port", "0", "--http-port", "0"]
            cluster = ["--cluster", "takeover", "--etcd", self.etcd, "--node", name, "--config", str(config)]
            with (self.directory / f"{name}.log").open("w") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "warren", "serve", *where, *cluster],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env={k: v for k, v in os.environ.items() if not k.startswith("WARREN_")},
                )
        for name, process in self.processes.items():
            assert process.stdout is not None
            line = process.stdout.readline()
            told = dict(word.partition("=")[::2] for word in line.split()[1:])
            self.urls[name] = f"amqp://guest:guest@{told['amqp']}/%2F"

    def keep_logs(self, to: Path) -> None:
        for name in NAMES:
            shutil.copy(self.directory / f"{name}.log", to)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


# --- making queues with messages ---


def connect(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(url))


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit("the cluster does not get ready")
        time.sleep(0.1)


def declare(url: str, queues: int) -> None:
    """As soon as the cluster has shards, and this node leads a part of them."""

    def is_declared(name: str) -> bool:
        try:
            channel = connection.channel()
            channel.queue_declare(name, durable=True)
            channel.close()
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != LOCKED:
                raise
            return False
        return True

    with contextlib.closing(connect(url)) as connection:
        for number in range(queues):
            eventually(partial(is_declared, QUEUE.format(number)))


def select_confirms() -> Dialogue[None]:
    yield Request(method_frame(CHANNEL, ConfirmSelect()), ConfirmSelectOk)


class Filler:
    """Publishes to all queues, and counts confirms."""

    def __init__(self, url: str) -> None:
        self.confirmed = 0
        self.connection = ClientConnection(parse_uri(url), product="takeover", on_frame=self._take)

    def _take(self, frame: Frame) -> None:
        method = decode_method(frame.payload)
        assert isinstance(method, BasicAck), method
        self.confirmed = method.delivery_tag

    def fill(self, queues: int, messages: int, size: int) -> None:
        with self.connection as connection:
            connection.talk(select_confirms())
            sent, each = 0, max(messages // queues, 1)
            for begun in range(0, each, A_BATCH):
                count = min(A_BATCH, each - begun)
                for number in range(queues):
                    publish = BasicPublish(
                        exchange="", routing_key=QUEUE.format(number), mandatory=False, immediate=False
                    )
                    one = publish_frames(publish, body_bytes=size, persistent=True, frame_max=FRAME_MAX)
                    connection.send([one.data * count])
                    sent += count
                    while sent - self.confirmed > WINDOW:
                        connection.receive(WAIT_SECONDS)
            while self.confirmed < sent:
                connection.receive(WAIT_SECONDS)


# --- what is seen from outside ---


@dataclass
class Seen:
    """Times since the node was killed, in seconds."""

    began: float = 0.0  # by the clock
    decided: dict[int, float] = field(default_factory=dict)  # by shard: another node leads
    first: dict[int, float] = field(default_factory=dict)  # by shard: its first queue is served
    last: dict[int, float] = field(default_factory=dict)  # by shard: its last queue is

    def now(self) -> float:
        return time.monotonic() - self.began


async def until_settled(etcd: Etcd) -> None:
    """Until each shard is led by the node that should lead it: it would be handed to that one later."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            loaded = await etcd.load(PREFIX + "shards/")
            records = [read_record(kv.value) for kv in loaded.kvs]
            if records and all(each.leader and each.leader.store == each.replicas[0] for each in records):
                return
            await asyncio.sleep(0.5)


async def queues_by_shard(etcd: Etcd) -> dict[int, list[str]]:
    """Of each shard the names of its queues, in the order in which they were made."""
    loaded = await etcd.load(PREFIX + "d/queue/")
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for kv in loaded.kvs:
        definition = read_definition(kv.value)
        assert definition.shard is not None
        found[definition.shard].append((kv.create_revision, kv.key.rpartition("/")[2]))
    return {shard: [name for _, name in sorted(queues)] for shard, queues in found.items()}


async def watch_leaders(etcd: Etcd, shards: set[int], seen: Seen) -> None:
    """Until each of these shards has another leader."""
    loaded = await etcd.load(PREFIX + "shards/")
    before = {kv.key: read_record(kv.value).epoch for kv in loaded.kvs}
    async for changes in etcd.watch(PREFIX + "shards/", loaded.revision + 1):
        for change in changes:
            if change.now is None:
                continue
            shard = int(change.now.key.rpartition("/")[2])
            if shard in shards and read_record(change.now.value).epoch > before[change.now.key]:
                seen.decided.setdefault(shard, seen.now())
        if shards <= seen.decided.keys():
            return


def ask_until_served(url: str, queues: dict[int, list[str]], seen: Seen) -> None:
    """In a thread: ask a node for the first and the last queue of each shard, until all are served."""
    with contextlib.closing(connect(url)) as connection:
        while len(seen.last) < len(queues):
            time.sleep(0.002)
            for shard, names in queues.items():
                for name, served in ((names[0], seen.first), (names[-1], seen.last)):
                    if shard in seen.decided and shard not in served and is_served(connection, name):
                        served[shard] = seen.now()


def is_served(connection: pika.BlockingConnection, queue: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    channel.close()
    return True


class Publisher(threading.Thread):
    """Publishes to one queue, one message after the other, each with its confirm."""

    def __init__(self, urls: list[str], queue: str) -> None:
        super().__init__()
        self.urls = urls
        self.queue = queue
        self.confirmed_at = [time.monotonic()]
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            for url in self.urls:
                with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                    self._publish_at(url)

    def _publish_at(self, url: str) -> None:
        with contextlib.closing(connect(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self.is_over.is_set():
                channel.basic_publish("", self.queue, b"1", pika.BasicProperties(delivery_mode=2))
                self.confirmed_at.append(time.monotonic())

    def longest_gap(self) -> float:
        times = self.confirmed_at
        return max(after - before for before, after in pairwise(times))


@contextmanager
def publishing(urls: list[str], queue: str) -> Iterator[Publisher]:
    publisher = Publisher(urls, queue)
    publisher.start()
    try:
        eventually(lambda: len(publisher.confirmed_at) > 10)
        publisher.confirmed_at = publisher.confirmed_at[-1:]
        yield publisher
    finally:
        publisher.is_over.set()
        publisher.join()


# --- the run ---


async def measure(brokers: Brokers, etcd: Etcd, end: int) -> tuple[Seen, float]:
    queues = await queues_by_shard(etcd)
    print(f"node a leads {len(queues)} shards with {sum(map(len, queues.values()))} queues")
    seen = Seen()
    loop = asyncio.get_running_loop()
    survivors = [brokers.urls[name] for name in NAMES[1:]]
    with publishing([brokers.urls["a"], *survivors], QUEUE.format(0)) as publisher:
        watching = asyncio.create_task(watch_leaders(etcd, set(queues), seen))
        await asyncio.sleep(0.5)  # the watch is there
        asking = [loop.run_in_executor(None, ask_until_served, url, queues, seen) for url in survivors]
        await asyncio.sleep(0.5)
        seen.began = time.monotonic()
        brokers.processes["a"].send_signal(end)
        await asyncio.wait_for(asyncio.gather(watching, *asking), WAIT_SECONDS)
        served = len(publisher.confirmed_at)
        await loop.run_in_executor(None, eventually, lambda: len(publisher.confirmed_at) > served)
    return seen, publisher.longest_gap()


def tell(seen: Seen, gap: float) -> None:
    def ms(seconds: float) -> str:
        return f"{1000 * seconds:,.0f} ms"

    after = {shard: seen.last[shard] - seen.decided[shard] for shard in seen.last}
    print(f"decided who leads:        first {ms(min(seen.decided.values()))}, all after", end=" ")
    print(ms(max(seen.decided.values())))
    print(f"first queue served:       after {ms(min(seen.first.values()))}")
    print(f"first queue of all shards after {ms(max(seen.first.values()))}")
    print(f"all queues served:        after {ms(max(seen.last.values()))}")
    print(f"decision to all queues:   {ms(max(after.values()))} for the slowest shard")
    print(f"one publisher's gap:      {ms(gap)}")


async def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        local = LocalEtcd(Path(directory) / "etcd", get_logger())
        etcd = Etcd(EtcdSettings(endpoints=(local.endpoint,)), time.monotonic)
        brokers = Brokers(Path(directory), local.endpoint)
        try:
            await local.start(etcd)
            await asyncio.to_thread(brokers.start)
            await until_settled(etcd)
            url, began = brokers.urls["a"], time.monotonic()
            await asyncio.to_thread(declare, url, arguments.queues)
            filler = Filler(url)
            await asyncio.to_thread(filler.fill, arguments.queues, arguments.messages, arguments.size)
            print(f"{filler.confirmed:,} messages are there after {time.monotonic() - began:.1f} s")
            end = signal.SIGKILL if arguments.end == "kill" else signal.SIGTERM
            tell(*await measure(brokers, etcd, end))
        finally:
            brokers.end()
            await local.stop()
            await etcd.close()
            if arguments.keep_logs:
                brokers.keep_logs(Path(arguments.keep_logs))
    print(f"load of this machine: {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=10_000_000, help="in all queues together")
    parser.add_argument("--size", type=int, default=16, help="bytes of a message's body")
    parser.add_argument("--end", choices=("kill", "stop"), default="kill", help="how the leader ends")
    parser.add_argument("--dir", help="where the data directories are made")
    parser.add_argument("--keep-logs", metavar="DIR", help="copy the brokers' logs to this directory")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
