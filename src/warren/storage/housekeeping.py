"""What is done in the background, in order, and that nobody waits for: indexes, ack files anew, deletions.

What fails because of the disk is tried again later, ever more rarely: an index that is missing makes the next
start slow, and what could not be deleted takes space. A mistake of ours is reported, and not tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from warren.storage.files import remove_segment, remove_tree
from warren.storage.log_directory import DELETED
from warren.storage.segment import Segment

ATTEMPTS_MAX = 12  # the last one more than an hour after the first
FAILED_MAX = 100_000


@dataclass
class Job:
    """`trouble` is what to say if it fails, `path` the file that it is about. It is due again at a `tick`,
    unless there is a `failed` to be called, whose owner sees to it.
    """

    trouble: str
    path: str
    work: Callable[[], None]
    failed: Callable[[], None] | None = None
    attempts: int = 0
    tick: int = 0


class Housekeeping:
    """`tick` goes up every second or so, with `try_again`."""

    def __init__(self, warn: Callable[..., Any], report: Callable[[Exception], None]) -> None:
        self.warn = warn
        self.report = report
        self.tick = 0
        self.failed: deque[Job] = deque()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="warren-housekeeping")

    def write_index(self, segment: Segment) -> None:
        """Write the index beside a segment that gets no more records."""
        self.do(
            "cannot write index",
            segment.path,
            lambda: None if segment.is_dropped() else segment.write_index(),
        )

    def remove(self, segment: Segment) -> None:
        """Delete its files, but not what could not all be read."""
        path = segment.path
        if not segment.damaged:
            self.do("cannot delete segment", path, lambda: remove_segment(path))

    def remove_now(self, segment: Segment) -> None:
        """The same, but not in the background."""
        if not segment.damaged:
            self._run(Job("cannot delete segment", segment.path, lambda: remove_segment(segment.path)))

    def remove_directories(self, paths: Sequence[str]) -> None:
        """Those of queues. A new name says that one is to go, should this not come to an end. They are handed
        over together: one by one, very many would cost the event loop more than the thread.
        """
        self._submit(*(Job("cannot delete directory", path, partial(remove_queue, path)) for path in paths))

    def rewrite(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Write an ack file anew."""
        self._submit(Job("cannot write ack file anew", path, work, failed))

    def let_go(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Be done with an ack file, the old one or one that was written in vain."""
        self._submit(Job("cannot let go of ack file", path, work, failed))

    def do(self, trouble: str, path: str, work: Callable[[], None]) -> None:
        self._submit(Job(trouble, path, work))

    def try_again(self) -> None:
        """From time to time: what has failed and is due."""
        self.tick += 1
        for _ in range(len(self.failed)):
            job = self.failed.popleft()
            if job.tick <= self.tick:
                self._submit(job)
            else:
                self.failed.append(job)

    def _submit(self, *jobs: Job) -> None:
        self.thread.submit(self._run_all, jobs)

    def _run_all(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._run(job)

    def _run(self, job: Job) -> None:
        try:
            self._work(job)
        except (OSError, MemoryError) as error:
            self._note_failure(job, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would hear of it
            self.report(error)

    def _work(self, job: Job) -> None:
        job.work()

    def _note_failure(self, job: Job, error: OSError | MemoryError) -> None:
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
        """When all is done."""
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
