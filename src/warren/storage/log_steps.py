"""What is left to do with a copied log, step by step, each when the one before is over.

Most steps are over at once. Some take a thread: they begin when nothing of the log is on its way to disk, and
are tried again until they succeed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from warren.storage.commit import GroupCommit
from warren.storage.diverged import Diverged
from warren.storage.files import OpenFiles
from warren.storage.housekeeping import Housekeeping
from warren.storage.segment import Segment

RETRY_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 0.05  # until it is looked again whether something in the background is over


class CopyTools(Protocol):
    """What the logs of a store share."""

    commit: GroupCommit
    files: OpenFiles
    housekeeping: Housekeeping
    diverged: Diverged
    sync: bool

    def note_cut(self, path: str, epoch: int, length: int) -> None: ...
    def call_from_thread(self, callback: Callable[[], None]) -> None: ...
    def call_later(self, seconds: float, callback: Callable[[], None]) -> object: ...
    def is_stream(self, queue: int) -> bool | None: ...


class LogSteps:
    """The steps of one log. A step is a function that returns whether it is over."""

    def __init__(self, tools: CopyTools) -> None:
        self.tools = tools
        self.steps: deque[Callable[[], bool]] = deque()
        self.busy = False  # a step is under way

    @property
    def are_over(self) -> bool:
        return not self.busy and not self.steps

    def do(self, step: Callable[[], bool]) -> None:
        """Do something when all steps before are over: most often at once."""
        if self.busy or self.steps:
            self.steps.append(step)
        else:
            self.busy = not step()
        if self.steps and not self.busy:
            self._go_on()

    def _go_on(self) -> None:
        self.busy = False
        while self.steps and not self.busy:
            self.busy = not self.steps.popleft()()

    def later(self, again: Callable[[], bool]) -> bool:
        """A step has to wait for something in the background, such as an ack file that is written anew."""

        def look_again() -> None:
            if again():
                self._go_on()

        self.tools.call_later(LOOK_AGAIN_SECONDS, look_again)
        return False

    def in_thread(
        self,
        trouble: str,
        path: str,
        work: Callable[[], None],
        done: Callable[[], None],
        segment: Segment | None = None,
    ) -> bool:
        """When nothing of this log is on its way to disk: do some work in the thread of housekeeping, and
        then what follows on the event loop. Marks of a `segment` whose ack file is replaced, and that could
        not be written until then, are given up: the new file counts.
        """
        tools = self.tools

        def close_files() -> None:
            for suffix in (".seg", ".acks"):
                tools.files.close(path + suffix)

        def finish() -> None:
            close_files()
            done()
            self._go_on()

        def submit() -> None:
            tools.housekeeping.attempt(trouble, path, run, failed)

        def run() -> None:
            work()
            tools.call_from_thread(finish)

        def try_again() -> None:
            tools.call_later(RETRY_SECONDS, submit)

        def failed() -> None:
            tools.call_from_thread(try_again)

        def begin(_round: int) -> None:
            tools.commit.write_marks()  # and deletes what was dropped: before the work, in the same thread
            if segment is not None:
                segment.forget_marks()
            close_files()
            submit()

        tools.commit.when_safe(begin)
        return False
