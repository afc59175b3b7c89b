"""Work in the background that nobody waits for, one job after the other: indexes are written, ack files are
written anew, and files are deleted.

A job that fails because of the disk is tried again later, ever more rarely: without an index the next start
is slow, and files that could not be deleted take space. A job that fails because of a mistake of ours is
reported, and not tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from warren.storage.files import remove_tree
from warren.storage.log_directory import DELETED
from warren.storage.segment import Segment

ATTEMPTS_MAX = 12  # the last one more than an hour after the first
FAILED_MAX = 100_000


@dataclass
class BackgroundJob:
    """Something to do."""

    trouble: str  # what the log says if it fails
    path: str  # the file that it is about
    work: Callable[[], None]
    failed: Callable[[], None] | None = None  # called if it fails; then it is not tried again
    attempts: int = 0  # how often it has failed
    tick: int = 0  # when it is tried again


class Housekeeping:
    """`tick` goes up every second or so, with `try_again`."""

    def __init__(self, warn: Callable[..., Any], report: Callable[[Exception], None]) -> None:
        self.warn = warn
        self.report = report
        self.tick = 0
        self.failed: deque[BackgroundJob] = deque()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="warren-housekeeping")

    def write_index(self, segment: Segment) -> None:
        """Write the index beside a segment that gets no more records."""
        self.do(
            "cannot write index",
            segment.path,
            lambda: None if segment.is_dropped() else segment.write_index(),
        )

    def remove(self, segment: Segment) -> None:
        """Delete the files of a segment, unless not all of it could be read."""
        path = segment.path
        if not segment.damaged:
            self.do("cannot delete segment", path, segment.remove_files)

    def remove_now(self, segment: Segment) -> None:
        """The same, but at once."""
        if not segment.damaged:
            self._run(BackgroundJob("cannot delete segment", segment.path, segment.remove_files))

    def remove_directories(self, paths: Sequence[str]) -> None:
        """Delete the directories of queues. Each is renamed first, so that the next start goes on with it if
        the broker ends before it is gone. They are handed to the thread together: one by one, very many would
        cost the event loop more than the thread.
        """
        self._submit(
            *(BackgroundJob("cannot delete directory", path, partial(remove_queue, path)) for path in paths)
        )

    def attempt(self, trouble: str, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Do something once; `failed` is called if it fails, in the thread."""
        self._submit(BackgroundJob(trouble, path, work, failed))

    def rewrite(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Write an ack file anew."""
        self._submit(BackgroundJob("cannot write ack file anew", path, work, failed))

    def let_go(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Close an ack file that is not needed: the old one, or a new one that was written in vain."""
        self._submit(BackgroundJob("cannot let go of ack file", path, work, failed))

    def do(self, trouble: str, path: str, work: Callable[[], None]) -> None:
        self._submit(BackgroundJob(trouble, path, work))

    def try_again(self) -> None:
        """From time to time: try failed jobs again that are due."""
        self.tick += 1
        for _ in range(len(self.failed)):
            job = self.failed.popleft()
            if job.tick <= self.tick:
                self._submit(job)
            else:
                self.failed.append(job)

    def _submit(self, *jobs: BackgroundJob) -> None:
        self.thread.submit(self._run_all, jobs)

    def _run_all(self, jobs: Sequence[BackgroundJob]) -> None:
        for job in jobs:
            self._run(job)

    def _run(self, job: BackgroundJob) -> None:
        try:
            self._work(job)
        except (OSError, MemoryError) as error:
            self._note_failure(job, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would hear of it
            self.report(error)

    def _work(self, job: BackgroundJob) -> None:
        job.work()

    def _note_failure(self, job: BackgroundJob, error: OSError | MemoryError) -> None:
        if job.failed is not None:
            self.warn(job.trouble, file=job.path, error=str(error))
            job.failed()
            return
        job.attempts += 1
        gives_up = job.attempts >= ATTEMPTS_MAX or len(self.failed) >= FAILED_MAX
        if job.attempts == 1 or gives_up:
            self.warn(job.trouble, file=job.path, error=str(error), tried_again=not gives_up)
        if not gives_up:
            job.tick = self.tick + 2**job.attempts
            self.failed.append(job)

    def stop(self) -> None:
        """Wait until all jobs are done, and end the thread."""
        self.thread.shutdown(wait=True)


def remove_queue(path: str) -> None:
    """A queue's directory, or what an earlier attempt has left of it."""
    deleted = path.removesuffix(DELETED) + DELETED
    remove_tree(deleted)
    if path != deleted and Path(path).exists():
        try:
            Path(path).rename(deleted)
        except OSError:  # the disk may be so full that not even a name fits
            deleted = path
        remove_tree(deleted)
