"""Real commands of Celery, in processes of their own: a worker, or another such as Flower."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.process import Address

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


class CeleryCommand:
    """A `celery` process and its children, in a session of their own. It is up when its log has a line that
    `up` matches; `told` is what was found there.
    """

    def __init__(
        self,
        broker: Address,
        queue: str,
        words: Sequence[str],
        up: str,
        module: str = "tests.clients.celery_tasks",
        **environment: str,
    ) -> None:
        self.queue = queue
        self.log: list[str] = []
        self.up = re.compile(up)
        self.told = ""
        self.ready = threading.Event()
        names = {"CELERY_BROKER_URL": broker.url(), "CLIENT_TESTS_QUEUE": queue, "PYTHONFAULTHANDLER": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", module, *words],
            cwd=ROOT,
            env={**os.environ, **names, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read_log)
        self.reader.start()
        if not self.ready.wait(START_SECONDS_MAX) or not self.told:
            self.kill()
            pytest.fail("".join([f"{words[0]} did not start:\n", *self.log]))

    def read_log(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            found = self.up.search(line)
            if found is not None:
                self.told = found[0]
                self.ready.set()
        self.ready.set()  # it has ended

    def stop(self) -> int:
        """End it as an operator would. One that does not end prints where each of its threads is."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            self.kill()
            pytest.fail("".join(["it did not stop:\n", *self.log]))
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it and its children, if any of them is left, without a chance to do anything."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Worker(CeleryCommand):
    """A `celery worker` with one child."""

    def __init__(
        self, broker: Address, queue: str, module: str = "tests.clients.celery_tasks", **environment: str
    ) -> None:
        self.name = f"worker@{queue}"
        words = ["worker", "--concurrency=1", "--loglevel=INFO", "--queues", queue, "--hostname", self.name]
        super().__init__(broker, queue, words, r"ready\.$", module, **environment)
