"""Reading the directories of all queues back, each as `recovery.py` and `stream_recovery.py` say.

There may be very many queues, most of them with a single small segment. Those are read in batches by threads
that do without the interpreter's lock (`short_logs.pyx`). Directories that these leave alone are read by the
thread that calls `run`: several threads would wait for the lock after every system call, and take four times
as long. Only queues with much to read are left to threads again, since most of that is done without the lock.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor

from warren.storage.files import names_in
from warren.storage.log_directory import parts_in
from warren.storage.problems import Logger, Problems
from warren.storage.recovery import RecoveredLog, recover, recover_short
from warren.storage.segment import Segment
from warren.storage.short_logs import ShortLogs
from warren.storage.stream_recovery import RecoveredStream, Sync, recover_stream

RECOVERY_THREADS = 4
LONG_BYTES_MIN = 1024 * 1024
BATCH = 128
BATCHES_AHEAD = 2 * RECOVERY_THREADS
FEW = 10  # queues whose directories are looked for one by one
PROGRESS_SECONDS = 1.0


class QueuesRecovery:
    """One reading back of all queues."""

    def __init__(
        self, queues: str, problems: Problems, sync: Sync, log: Logger, *, marks_may_be_lost: bool
    ) -> None:
        self.queues = queues  # the directory of all queues
        self.problems = problems
        self.sync = sync
        self.log = log
        self.marks_may_be_lost = marks_may_be_lost  # the machine went down
        self.logs: dict[tuple[int, str], RecoveredLog] = {}  # by number and part of a queue
        self.streams: dict[int, RecoveredStream] = {}  # by number

    def run(self, numbers: AbstractSet[int], streams: AbstractSet[int]) -> None:
        """Read back those of these queues, some of them `streams`, that have a directory."""
        present = self._present(numbers)
        progress = RecoveryProgress(len(present), self.log)
        queues = [number for number in present if number not in streams]
        long: list[tuple[int, list[str]]] = [(number, []) for number in present if number in streams]

        def recover_long(one: tuple[int, list[str]]) -> None:
            number, names = one
            if number in streams:
                self.streams[number] = recover_stream(self._path(number), self.problems, self.sync)
            else:
                self._recover_queue(number, names)
            progress.step()

        with ThreadPoolExecutor(RECOVERY_THREADS, thread_name_prefix="warren-recovery") as threads:
            for number, segments in self._short_logs(threads, queues):
                if segments is not None:
                    self._take_over(segments, number)
                    progress.step()
                    continue
                names = names_in(self._path(number))
                if self._is_long(number, names):
                    long.append((number, names))
                else:
                    self._recover_queue(number, names)
                    progress.step()
            list(threads.map(recover_long, long))
        progress.end()

    def _short_logs(
        self, threads: ThreadPoolExecutor, queues: list[int]
    ) -> Iterator[tuple[int, list[Segment] | None]]:
        """The segments of queues that are short; None for a queue that is not, or where anything is wrong."""
        batches = [queues[at : at + BATCH] for at in range(0, len(queues), BATCH)]
        parent = os.open(self.queues, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for batch, logs in zip(batches, _read_ahead(threads, parent, batches), strict=True):
                yield from zip(batch, logs.segments(self.queues), strict=True)
        finally:
            os.close(parent)

    def _present(self, numbers: AbstractSet[int]) -> list[int]:
        """Those of these queues that have a directory. To look at all of them pays only for many."""
        if len(numbers) <= FEW:
            return sorted(number for number in numbers if os.path.isdir(self._path(number)))  # noqa: PTH112
        with os.scandir(self.queues) as found:
            there = (int(entry.name) for entry in found if entry.name.isdecimal() and entry.is_dir())
            return sorted(number for number in there if number in numbers)

    def _path(self, number: int) -> str:
        return f"{self.queues}/{number}"

    def _is_long(self, number: int, names: list[str]) -> bool:
        segments = [name for name in names if name.endswith(".seg")]
        if len(segments) != 1:
            return len(segments) > 1
        return os.stat(f"{self._path(number)}/{segments[0]}").st_size > LONG_BYTES_MIN  # noqa: PTH116

    def _take_over(self, segments: list[Segment], number: int) -> None:
        lost = self.marks_may_be_lost
        self.logs[number, ""] = recover_short(segments, self.problems, marks_may_be_lost=lost)

    def _recover_queue(self, number: int, names: list[str]) -> None:
        """Read all logs of one queue."""
        path, lost = self._path(number), self.marks_may_be_lost
        self.logs[number, ""] = recover(path, self.problems, names, marks_may_be_lost=lost)
        for part in parts_in(path, names):
            inner = f"{path}/{part}"
            self.logs[number, part] = recover(
                inner,
                self.problems,
                names_in(inner),
                marks_may_be_lost=lost,
                is_of_part=True,
            )


def _read_ahead(threads: ThreadPoolExecutor, parent: int, batches: list[list[int]]) -> Iterator[ShortLogs]:
    """The batches in their order. Some are read ahead, but not all of them: that might take much memory."""
    reading: deque[Future[ShortLogs]] = deque()
    for batch in batches:
        reading.append(threads.submit(ShortLogs(parent, batch).read))
        if len(reading) > BATCHES_AHEAD:
            yield reading.popleft().result()
    while reading:
        yield reading.popleft().result()


class RecoveryProgress:
    """Logs every second how far the reading back is."""

    def __init__(self, total: int, log: Logger) -> None:
        self.total = total  # how many queues there are
        self.log = log
        self.done = 0  # how many are read
        self.lock = threading.Lock()
        self.told = False  # something was logged, so the end is, too
        self.timer = self._start()

    def _start(self) -> threading.Timer:
        timer = threading.Timer(PROGRESS_SECONDS, self._tell)
        timer.daemon = True
        timer.start()
        return timer

    def step(self) -> None:
        with self.lock:
            self.done += 1

    def _tell(self) -> None:
        with self.lock:
            self.told = True
            self.log.info("recovering queues", done=self.done, of=self.total)
            self.timer = self._start()

    def end(self) -> None:
        with self.lock:
            self.timer.cancel()
        if self.told:
            self.log.info("queues recovered", queues=self.total)
