"""`warren cluster demo` as its users run it: a cluster that is spoken to over the standard input."""

from __future__ import annotations

import os
import pty
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pika
import pika.exceptions
import pytest

from tests.cluster.real.broker_nodes import eventually
from tests.cluster.real.http_client import HttpClient

pytestmark = pytest.mark.slow

SECONDS_MAX = 180.0  # for a cluster to start, on a busy machine
NODE = re.compile(r"node (\w)   (amqp://\S+)   (http://\S+)")
CTRL_D = b"\x04"


class DemoProcess:
    """The demo on free ports. On leaving, whatever is left of it is killed."""

    def __init__(self, directory: Path, *, terminal: int | None = None) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "warren", "cluster", "demo", "--port", "0", "--http-port", "0"],
            stdin=subprocess.PIPE if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(directory)},
        )
        self.lines: queue.Queue[str | None] = queue.Queue()  # None at the end
        self.shown: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        eventually(lambda: self.left() == {})

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def until(self, text: str) -> str:
        """The next line with this text."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no {text!r}, but:\n{''.join(self.shown)}"
            self.shown.append(line)
            if text in line:
                return line

    def nodes(self) -> dict[str, tuple[str, str]]:
        """Where clients connect to, by the names of nodes, as the demo tells when it is ready."""
        self.until("The cluster is ready")
        self.until("quit  ")
        return {name: (amqp, http) for name, amqp, http in NODE.findall("".join(self.shown))}

    def left(self) -> dict[int, str]:
        """The processes of this demo's brokers and its etcd."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has ended just now
                continue
            if f"{self.directory}/" in command:
                found[int(process.name)] = command
        return found

    def ends_well(self) -> None:
        """Without being killed, and with nothing left: no process, no file."""
        assert self.process.wait(SECONDS_MAX) == 0
        assert self.left() == {}
        assert list(self.directory.iterdir()) == []


def queue_told(urls: list[str]) -> dict[str, Any]:
    """The queue, as its leader tells it; empty if nobody leads it now."""
    for url in urls:
        for told in HttpClient(url).get("nodes"):
            is_this = "mem_used" in told
            for each in HttpClient(url).get("queues") if is_this else ():
                if each["leader"] == told["name"]:
                    return dict(each)
    return {}


def test_what_was_confirmed_outlives_the_node_that_is_killed(tmp_path: Path) -> None:
    with DemoProcess(tmp_path) as demo:
        nodes = demo.nodes()
        assert list(nodes) == ["a", "b", "c"]
        urls = {name: http for name, (_, http) in nodes.items()}
        HttpClient(urls["a"]).put("queues/%2F/orders", {"durable": True})

        def is_published() -> bool:
            leader = queue_told(list(urls.values())).get("leader", "a")
            try:
                with pika.BlockingConnection(pika.URLParameters(nodes[leader][0])) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    properties = pika.BasicProperties(delivery_mode=2)
                    channel.basic_publish("", "orders", b"hello", properties, mandatory=True)
            except pika.exceptions.AMQPError:  # another node leads it by now
                return False
            return True

        eventually(is_published)
        leader = queue_told(list(urls.values())).get("leader", "a")
        demo.say(f"kill {leader}")
        demo.until(f"{leader} is killed")
        demo.until("all 12 shards are led by others")
        survivors = [url for name, url in urls.items() if name != leader]
        eventually(lambda: queue_told(survivors).get("messages", 0) > 0)
        demo.say("status")
        assert f" {leader} " in demo.until("not running")
        demo.say(f"start {leader}")
        demo.until(f"{leader} is in sync")
        assert len(demo.left()) == 4
        demo.say("quit")
        demo.ends_well()


def test_a_broker_that_dies_is_told_and_the_end_of_a_terminal_ends_all(tmp_path: Path) -> None:
    mine, its = pty.openpty()
    with DemoProcess(tmp_path, terminal=its) as demo:
        os.close(its)
        demo.nodes()
        (broker,) = [pid for pid, command in demo.left().items() if "--node b " in command]
        os.kill(broker, signal.SIGKILL)
        demo.until("b has ended by itself")
        os.write(mine, b"pause c\n")
        demo.until("c is paused")
        os.write(mine, CTRL_D)
        demo.ends_well()
    os.close(mine)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_demo_that_starts(tmp_path: Path, number: int) -> None:
    with DemoProcess(tmp_path) as demo:
        demo.until("starting etcd")
        eventually(lambda: bool(demo.left()))
        demo.process.send_signal(number)
        demo.ends_well()


def test_nothing_runs_on_when_the_demo_itself_is_killed(tmp_path: Path) -> None:
    with DemoProcess(tmp_path) as demo:
        eventually(lambda: len(demo.left()) == 4)
        demo.process.kill()
        eventually(lambda: demo.left() == {})
