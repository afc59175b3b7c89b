"""A real Celery worker, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.process import Address

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


class Worker:
    """A `celery worker` process with one child, in a session of their own; it is up when its log says so."""

    def __init__(
        self, broker: Address, queue: str, module: str = "tests.clients.celery_tasks", **environment: str
    ) -> None:
        self.queue = queue
        self.name = f"worker@{queue}"
        self.log: list[str] = []
        self.ready = threading.Event()
        command = [sys.executable, "-m", "celery", "-A", module, "worker"]
        names = {"CELERY_BROKER_URL": broker.url(), "CLIENT_TESTS_QUEUE": queue, "PYTHONFAULTHANDLER": "1"}
        self.process = subprocess.Popen(
            [*command, "--concurrency=1", "--loglevel=INFO", "--queues", queue, "--hostname", self.name],
            cwd=ROOT,
            env={**os.environ, **names, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read_log)
        self.reader.start()
        if not self.ready.wait(START_SECONDS_MAX):
            self.stop()
            pytest.fail("".join(["the worker did not start:\n", *self.log]))

    def read_log(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            if line.rstrip().endswith("ready."):
                self.ready.set()

    def stop(self) -> int:
        """End the worker as an operator would. One that does not end prints where each of its threads is."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            self.kill()
            pytest.fail("".join(["the worker did not stop:\n", *self.log]))
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the worker and its child, if any of them is left, without a chance to do anything."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
