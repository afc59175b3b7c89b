"""How much memory a broker keeps after a burst of messages, for durable queues that nobody consumes, and
after large messages.

    python benchmarks/memory.py burst --gb 5 --rounds 3
        mixed messages over 40 queues, a quarter of them durable and persistent; then half of the queues are
        consumed, all are deleted, and the resident memory is shown up to 30 seconds later
    python benchmarks/memory.py durable --queues 40 --rounds 3
        durable queues with 20 MB of persistent messages each and no consumer, the watermark at 400 MB
    python benchmarks/memory.py large --queues 10 --rounds 3
        durable queues with a persistent message of 60 MB each, which is read and acked; then the queues are
        deleted

A broker is started for each round, on ports and in a directory of its own, and stopped again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pika

from warren.amqp.methods import BasicConsume, BasicPublish
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.writer import Output
from warren.client.connection import ClientConnection
from warren.client.frames import CHANNEL, method_frame
from warren.client.inbox import Frame
from warren.client.uri import Uri, parse_uri

MB = 1_000_000
QUEUES = 40
SIZES = {100: 200, 1_000: 50, 10_000: 8, 100_000: 1}  # bytes of a body: how many such messages in a cycle
CYCLES_A_CHUNK = 4
QUEUE_BYTES = 20 * MB
LARGE_BYTES = 60 * MB
SECONDS_AFTER = 30
WAIT_SECONDS_MAX = 600
LOOK_SECONDS = 0.2


@dataclass
class Broker:
    process: subprocess.Popen[str]
    uri: Uri
    http: str
    log: Path

    def resident_mb(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // MB

    def used_mb(self) -> int:
        with urllib.request.urlopen(f"http://{self.http}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        used = next(line for line in lines if line.startswith("warren_memory_used_bytes "))
        return int(used.split()[1]) // MB

    def alarms(self) -> int:
        return self.log.read_text().count('"alarm raised"')

    def connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters(self.uri.host, self.uri.port, heartbeat=0))

    def dial(self) -> ClientConnection:
        return ClientConnection(self.uri, product="benchmark", on_frame=ignore)


def ignore(_frame: Frame) -> None:
    """Deliveries are read and thrown away."""


@contextlib.contextmanager
def running(**settings: float) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="warren-memory-") as directory:
        log = Path(directory, "log")
        command = [sys.executable, "-m", "warren", "serve", "--port", "0", "--http-port", "0"]
        with log.open("w") as errors:
            process = subprocess.Popen(
                [*command, "--data-dir", f"{directory}/data"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {f"WARREN_{name.upper()}": str(value) for name, value in settings.items()},
            )
        try:
            told = dict(
                word.partition("=")[::2] for word in (process.stdout or sys.stdin).readline().split()[1:]
            )
            yield Broker(process, parse_uri(f"amqp://guest:guest@{told['amqp']}/"), told["http"], log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_SECONDS_MAX)


def publishes(queue: str, sizes: Sequence[int], *, persistent: bool, priorities: int = 0) -> bytes:
    """The frames that publish messages of these sizes."""
    output = Output([], None)
    output.frame_max = 131_072
    method = method_frame(CHANNEL, BasicPublish(routing_key=queue))
    chunks = []
    for number, size in enumerate(sizes):
        properties = BasicProperties(
            delivery_mode=PERSISTENT if persistent else None,
            priority=number % (priorities + 1) if priorities else None,
        )
        output.content(CHANNEL, properties.encode(), random.Random(size).randbytes(size))
        chunks += [method, *output.take()]
    return b"".join(chunks)


def wait_for_messages(channel: pika.channel.Channel, queues: Sequence[str], count: int) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        found = sum(channel.queue_declare(name, passive=True).method.message_count for name in queues)
        if found == count:
            return
        if time.monotonic() > end:
            raise TimeoutError(f"{found} messages, and not {count}")
        time.sleep(LOOK_SECONDS)


# --- a burst ---


def burst(gigabytes: float) -> None:
    names = [f"q{number}" for number in range(QUEUES)]
    limits = {"memory_watermark": 2e9 * gigabytes, "memory_budget": 1.5e9 * gigabytes}
    with running(**limits) as broker:
        started = broker.resident_mb()
        control = broker.connect()
        channel = control.channel()
        for number, name in enumerate(names):
            channel.queue_declare(name, durable=number % 4 == 0)
        count = fill(broker, names, gigabytes * 1e9)
        wait_for_messages(channel, names, count)
        full = broker.resident_mb()
        consume(broker, channel, names[::2])
        for name in names:
            channel.queue_delete(name)
        control.close()
        print(f"{started} MB resident at first, {full} MB with {count} messages", end="", flush=True)
        for second in range(1, SECONDS_AFTER + 1):
            time.sleep(1)
            if second in {1, 5, 10, SECONDS_AFTER}:
                print(f", {broker.resident_mb()} MB after {second} s", end="", flush=True)
        print(f"; {broker.used_mb()} MB used, {broker.alarms()} alarms")


def fill(broker: Broker, names: Sequence[str], total_bytes: float) -> int:
    """Publish this many bytes, spread over the queues; return how many messages that took."""
    sizes = [size for size, count in SIZES.items() for _ in range(count * CYCLES_A_CHUNK)]
    random.Random(1).shuffle(sizes)
    chunks = [publishes(name, sizes, persistent=number % 4 == 0) for number, name in enumerate(names)]
    sent = rounds = 0
    with broker.dial() as link:
        while sent < total_bytes:
            chunk = chunks[rounds % len(chunks)]
            link.send([chunk], timeout_s=WAIT_SECONDS_MAX)
            sent += len(chunk)
            rounds += 1
    return rounds * len(sizes)


def consume(broker: Broker, channel: pika.channel.Channel, names: Sequence[str]) -> None:
    """Consume all messages of these queues."""
    over = threading.Event()

    def take() -> None:
        with broker.dial() as link:
            for name in names:
                link.send([method_frame(CHANNEL, BasicConsume(queue=name, no_ack=True, arguments={}))])
            while not over.is_set():
                link.poll(LOOK_SECONDS)

    thread = threading.Thread(target=take)
    thread.start()
    wait_for_messages(channel, names, 0)
    over.set()
    thread.join()


# --- queues that nobody consumes ---


def durable(queues: int, priorities: int, watermark: float) -> None:
    sizes = [1_000] * (QUEUE_BYTES // 1_000 if queues <= QUEUES else 1_000)
    arguments = {"x-max-priority": priorities} if priorities else {}
    with running(memory_watermark=watermark) as broker:
        started, peak = broker.used_mb(), 0
        control = broker.connect()
        channel = control.channel()
        with broker.dial() as link:
            for number in range(queues):
                name = f"q{number}"
                channel.queue_declare(name, durable=True, arguments=arguments)
                link.send([publishes(name, sizes, persistent=True, priorities=priorities)])
                wait_for_messages(channel, [name], len(sizes))
                peak = max(peak, broker.resident_mb())
        time.sleep(SECONDS_AFTER / 6)
        print(f"{queues} queues with {len(sizes)} messages each: {started} MB used before", end="")
        print(f", {broker.used_mb()} MB after; {peak} MB resident at most", end="")
        print(f", {broker.resident_mb()} MB in the end; {broker.alarms()} alarms", flush=True)
        control.close()


# --- large messages ---


def large(queues: int) -> None:
    names = [f"q{number}" for number in range(queues)]
    persistent = pika.BasicProperties(delivery_mode=PERSISTENT)
    with running() as broker:
        print(f"{broker.resident_mb()} MB resident at first", end="", flush=True)
        control = broker.connect()
        channel = control.channel()
        channel.confirm_delivery()
        for name in names:
            channel.queue_declare(name, durable=True)
            channel.basic_publish("", name, bytes(LARGE_BYTES), persistent)
        print_later(broker, f"{queues} messages of {LARGE_BYTES // MB} MB wait")
        for name in names:
            method, _, _ = channel.basic_get(name)
            channel.basic_ack(method.delivery_tag)
        control.close()
        print_later(broker, "all are acked and the connection is closed")
        control = broker.connect()
        for name in names:
            control.channel().queue_delete(name)
        control.close()
        print_later(broker, "the queues are deleted")
        print(f"; {broker.alarms()} alarms", flush=True)


def print_later(broker: Broker, what: str) -> None:
    print(f"; {what}:", end="")
    for _ in range(2):
        time.sleep(SECONDS_AFTER / 6)
        print(f" {broker.resident_mb()} MB", end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["burst", "durable", "large"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--gb", type=float, default=5.0)
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--priorities", type=int, default=0)
    parser.add_argument("--watermark", type=float, default=400e6)
    options = parser.parse_args()
    for _ in range(options.rounds):
        if options.what == "burst":
            burst(options.gb)
        elif options.what == "large":
            large(options.queues)
        else:
            durable(options.queues, options.priorities, options.watermark)


if __name__ == "__main__":
    main()
