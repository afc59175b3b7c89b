"""A flood: publishers that never stop, into a fanout exchange with very many queues that nobody consumes.

Meanwhile it is measured how long the HTTP API and a new client wait for their answers, and how far the
broker's memory goes past its watermark. Each case starts a broker of its own and ends by itself.

    python benchmarks/flood.py                                       all cases of the README
    python benchmarks/flood.py --publishers 100 --queues 5000 --persistent
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pika

from warren.amqp import methods as m
from warren.client.frames import method_frame
from warren.perf.frames import publish_frames

WATERMARK_BYTES = 1_000_000_000
EXCHANGE = "flood"
BATCH = 2_000
PROBE_SECONDS = 0.1
READY_SECONDS_MAX = 30
AUTHORIZATION = "Basic " + b64encode(b"guest:guest").decode()


@dataclass(frozen=True)
class Case:
    publishers: int
    queues: int
    persistent: bool
    seconds: float
    body_bytes: int

    def __str__(self) -> str:
        kind = "persistent" if self.persistent else "transient"
        return f"{self.publishers:>3} publishers, {self.queues:>5,} queues, {kind}"


@dataclass
class Waits:
    """How long each answer took, in seconds."""

    taken: list[float] = field(default_factory=list)

    def probe(self, ask: Callable[[], None], end: threading.Event) -> None:
        while not end.wait(PROBE_SECONDS):
            start = time.monotonic()
            ask()
            self.taken.append(time.monotonic() - start)

    def __str__(self) -> str:
        ordered = sorted(self.taken)
        if not ordered:
            return "no answer"
        return f"median {ordered[len(ordered) // 2] * 1000:>4,.0f} ms, worst {ordered[-1] * 1000:>5,.0f} ms"


# --- the flood ---


def flood(port: int, case: Case) -> None:
    """Publish without waiting for any answer, from the first byte on; answers are read and thrown away."""
    hello = b"AMQP\0\0\x09\x01" + b"".join(
        [
            method_frame(
                0, m.ConnectionStartOk(client_properties={}, mechanism="PLAIN", response=b"\0guest\0guest")
            ),
            method_frame(0, m.ConnectionTuneOk(channel_max=10, frame_max=131_072, heartbeat=0)),
            method_frame(0, m.ConnectionOpen(virtual_host="/")),
            method_frame(1, m.ChannelOpen()),
        ]
    )
    message = publish_frames(
        m.BasicPublish(exchange=EXCHANGE, routing_key=""),
        body_bytes=case.body_bytes,
        persistent=case.persistent,
        frame_max=131_072,
    )
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(case.publishers)]
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, [memoryview(hello)])
        batch, end = memoryview(message.data * BATCH), time.monotonic() + case.seconds
        while time.monotonic() < end:
            for key, events in selector.select(timeout=0.1):
                assert isinstance(key.fileobj, socket.socket)
                serve(key.fileobj, events, key.data, batch)
    for connection in connections:
        connection.close()


def serve(connection: socket.socket, events: int, unsent: list[memoryview], batch: memoryview) -> None:
    if events & selectors.EVENT_READ and not connection.recv(1 << 16):
        raise SystemExit("the broker closed a publisher's connection")
    if events & selectors.EVENT_WRITE:
        sent = connection.send(unsent[0])
        unsent[0] = unsent[0][sent:] or batch


# --- everybody else ---


def ask_http(port: int) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/whoami", headers={"Authorization": AUTHORIZATION}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert answer.status == 200


def connect(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60, blocked_connection_timeout=60)
    )


def come_and_go(port: int) -> None:
    connection = connect(port)
    connection.channel().queue_declare("probe", auto_delete=True)
    connection.close()


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


# --- a case ---


def run(case: Case) -> None:
    with tempfile.TemporaryDirectory() as directory:
        amqp, http = free_port(), free_port()
        command = ["serve", f"--port={amqp}", f"--http-port={http}", f"--data-dir={directory}"]
        broker = subprocess.Popen(
            [sys.executable, "-m", "warren", *command, "--log-level=warning"],
            env=os.environ | {"WARREN_MEMORY_WATERMARK": str(WATERMARK_BYTES)},
        )
        try:
            make_queues(amqp, case)
            print(f"{case}: {measure(case, broker.pid, amqp, http)}", flush=True)
        finally:
            broker.kill()
            broker.wait()


def make_queues(port: int, case: Case) -> None:
    channel = connect_when_ready(port).channel()
    channel.exchange_declare(EXCHANGE, "fanout")
    for number in range(case.queues):
        channel.queue_declare(f"q{number}", durable=case.persistent)
        channel.queue_bind(f"q{number}", EXCHANGE)
    channel.connection.close()


def connect_when_ready(port: int) -> pika.BlockingConnection:
    end = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            return connect(port)
        except pika.exceptions.AMQPConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def measure(case: Case, pid: int, amqp: int, http: int) -> str:
    api, clients, end = Waits(), Waits(), threading.Event()
    probes = [
        threading.Thread(target=api.probe, args=(lambda: ask_http(http), end)),
        threading.Thread(target=clients.probe, args=(lambda: come_and_go(amqp), end)),
    ]
    publishers = multiprocessing.Process(target=flood, args=(amqp, case))
    publishers.start()
    for probe in probes:
        probe.start()
    publishers.join()
    peak = peak_bytes(pid)
    end.set()
    for probe in probes:
        probe.join()
    return f"peak {peak / 1e6:,.0f} MB; HTTP {api}; new client {clients}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--publishers", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--queues", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--persistent", action="store_true", help="only persistent messages, durable queues")
    parser.add_argument("--transient", action="store_true", help="only transient messages")
    parser.add_argument("--size", type=int, default=16, help="bytes of a body")
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args()
    kinds = [kind for kind, other in ((False, asked.persistent), (True, asked.transient)) if not other]
    for publishers, queues, persistent in product(asked.publishers, asked.queues, kinds):
        run(Case(publishers, queues, persistent, asked.seconds, asked.size))


if __name__ == "__main__":
    main()
