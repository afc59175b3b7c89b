"""Drivers that are killed at random moments, and messages that keep coming meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import pika
import pyarrow.parquet as pq

from tests.support.process import Address
from warren.pipeline import archive_files

LOOK_SECONDS = 0.03
PUBLISH_SECONDS = 0.005
START_SECONDS_MAX = 150
WRITES_MAX = 40
"""A driver is killed after at most this many new files: of a batch's offsets, of rows, of lists."""

MOMENT_SECONDS_MAX = 0.5
"""The kill comes at most this long after the last of those writes, so that it may hit any other step, too."""


class InThread:
    """A context manager whose `_run` runs in a thread."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        """Must return when `_stop` is set."""
        raise NotImplementedError


class Publishing(InThread):
    """Publishes the numbers from 0 on to a queue, in a thread, each after the one before it is confirmed. At
    the end, `confirmed` is how many were.
    """

    def __init__(self, address: Address, queue: str) -> None:
        super().__init__()
        self._address = address
        self._queue = queue
        self.confirmed = 0

    def _run(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._address.url())) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self._stop.wait(PUBLISH_SECONDS):
                channel.basic_publish("", self._queue, b"%d" % self.confirmed)
                self.confirmed += 1


class Reading(InThread):
    """Reads an archive again and again, in a thread and without Spark, and asserts that it has the first
    messages, each once. At the end, `rounds` is how often it was read.
    """

    def __init__(self, archive: Path) -> None:
        super().__init__()
        self._archive = archive
        self.rounds = 0
        self.wrong: list[list[int]] = []

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            with suppress(FileNotFoundError):  # the file was merged, and the archive job has removed it
                found = sorted(self._offsets())
                self.rounds += found == list(range(len(found))) and bool(found)
                if found != list(range(len(found))):
                    self.wrong.append(found)

    def _offsets(self) -> Iterator[int]:
        for file in archive_files(self._archive):
            yield from pq.read_table(file, columns=["offset"], partitioning=None).column("offset").to_pylist()


def kill_at_random(command: Sequence[str], place: Path, chance: random.Random, log: Path) -> str:
    """Start a driver that writes below `place`, and kill it with all its processes; returns when, in words.
    The driver first recovers from the last kill, so its first writes are those of a recovery.
    """
    writes, seconds = chance.randint(1, WRITES_MAX), chance.uniform(0, MOMENT_SECONDS_MAX)
    with log.open("w") as output:
        driver = subprocess.Popen(command, start_new_session=True, stdout=output, stderr=output)
    try:
        _wait_for_writes(driver, place, writes, log)
        assert _lives(driver, seconds), log.read_text()
    finally:
        kill_session(driver)
    return f"{seconds:.2f} s after {writes} writes"


def kill_when(command: Sequence[str], has_come: Callable[[], bool], log: Path) -> None:
    """Start a driver, and kill it with all its processes as soon as `has_come()`. It gets less of a busy
    machine than who looks, or the moment could be over before anybody has seen it.
    """
    with log.open("w") as output:
        driver = subprocess.Popen(
            ["nice", "-n", "5", *command], start_new_session=True, stdout=output, stderr=output
        )
    try:
        until = time.monotonic() + START_SECONDS_MAX
        while not has_come():  # without a pause: some moments are short
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
    finally:
        kill_session(driver)


def _wait_for_writes(driver: subprocess.Popen[bytes], place: Path, count: int, log: Path) -> None:
    before = set(place.rglob("*"))
    seen: set[Path] = set()
    for _ in range(int(START_SECONDS_MAX / LOOK_SECONDS)):
        with suppress(FileNotFoundError):  # Spark removes files while we look
            seen.update(place.rglob("*"))
        if len(seen - before) >= count:
            return
        assert _lives(driver, LOOK_SECONDS), log.read_text()
    raise AssertionError(f"nothing written in {START_SECONDS_MAX} s: {log.read_text()}")


def _lives(driver: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        driver.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants with SIGKILL: Java, and Spark's Python workers. They are gone when
    this returns.
    """
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    while members := list(_members(leader.pid)):
        for process in members:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _members(session: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, its_session = path.read_text().rpartition(") ")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                yield int(path.parent.name)
