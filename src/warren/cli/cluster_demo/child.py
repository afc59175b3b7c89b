"""A broker of the demo: a process of its own, which can be killed, stopped, paused and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from warren.cli.cluster_demo.log_view import LogView
from warren.server.cluster.local_etcd import end_with_parent

READY = b"ready "
LINE_BYTES_MAX = 1024 * 1024
STOP_SECONDS_MAX = 15.0


class Child:
    def __init__(self, name: str, directory: Path, arguments: list[str], view: LogView) -> None:
        self.name = name
        self.directory = directory  # of its data
        self.arguments = arguments  # of `warren serve`, besides its ports
        self.view = view
        self.port = 0  # for AMQP; 0 until the kernel has chosen one, which is kept from then on
        self.http_port = 0
        self.process: asyncio.subprocess.Process | None = None
        self.watching: asyncio.Task[None] | None = None  # reads its output until it ends
        self.is_ready = asyncio.Event()
        self.is_over = asyncio.Event()  # it has ended, and all that it said is shown
        self.is_paused = False
        self.is_asked_to_end = False
        self.said_last = ""  # what is not of the log: why it does not start

    @property
    def amqp_url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def is_there(self) -> bool:
        """Whether its process is."""
        return self.process is not None and self.process.returncode is None

    @property
    def answers(self) -> bool:
        return self.is_there and self.is_ready.is_set() and not self.is_paused

    @property
    def state(self) -> str:
        if not self.is_there:
            return "not running"
        if self.is_paused:
            return "paused"
        if self.is_asked_to_end:
            return "stopping"
        return "running" if self.is_ready.is_set() else "starting"

    async def start(self) -> None:
        self.is_ready.clear()
        self.is_over.clear()
        self.is_paused = self.is_asked_to_end = False
        command = [
            sys.executable,
            "-m",
            "warren",
            "serve",
            *self.arguments,
            "--data-dir",
            str(self.directory),
        ]
        ports = ["--port", str(self.port), "--http-port", str(self.http_port)]
        self.process = process = await asyncio.create_subprocess_exec(
            *command,
            *ports,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("WARREN_")},
            limit=LINE_BYTES_MAX,
            start_new_session=True,  # Ctrl-C is for the demo, which ends its brokers then
            preexec_fn=partial(end_with_parent, signal.SIGKILL),
        )
        self.watching = asyncio.create_task(self._watch(process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(_lines(process.stdout, self._said), _lines(process.stderr, self._logged))
        code = await process.wait()
        if not self.is_asked_to_end and self.is_ready.is_set():
            self.view.tell(
                f"{self.name} has ended by itself, with code {code}: 'start {self.name}' starts it"
            )
        self.is_over.set()

    def _said(self, line: bytes) -> None:
        """On its standard output it says where it listens, when it is ready."""
        if line.startswith(READY):
            told = dict(word.partition("=")[::2] for word in line.decode().split()[1:])
            self.port = int(told["amqp"].rpartition(":")[2])
            self.http_port = int(told["http"].rpartition(":")[2])
            self.is_ready.set()

    def _logged(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not self.view.log_line(self.name, text):
            self.said_last = text

    async def ready(self) -> bool:
        """Wait until clients can connect; False if it ends before."""
        waiting = [asyncio.create_task(each.wait()) for each in (self.is_ready, self.is_over)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        return self.is_ready.is_set() and self.is_there

    # --- what can be done to it ---

    def kill(self) -> None:
        """As if the machine had lost its power."""
        self._send(signal.SIGKILL)

    def stop(self) -> None:
        """As systemd does. It hands over first what it leads."""
        self.resume()
        self._send(signal.SIGTERM)

    def pause(self) -> None:
        """It does nothing, and does not notice."""
        if self.is_there:
            self.is_paused = True
            os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_paused and self.is_there:
            os.kill(self._pid, signal.SIGCONT)
        self.is_paused = False

    def _send(self, number: int) -> None:
        self.is_asked_to_end = True
        if self.is_there:
            os.kill(self._pid, number)

    @property
    def _pid(self) -> int:
        assert self.process is not None, "a broker is started first"
        return self.process.pid

    async def end(self, *, kindly: bool) -> None:
        """Return when the process is gone."""
        if self.watching is None:
            return
        if kindly:
            self.stop()
            try:
                await asyncio.wait_for(self.is_over.wait(), STOP_SECONDS_MAX)
            except TimeoutError:
                self.view.tell(f"{self.name} does not stop, and is killed")
        self.kill()
        await self.watching


async def _lines(stream: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit; the rest of it is the next line
            continue
        if not line:
            return
        take(line)
