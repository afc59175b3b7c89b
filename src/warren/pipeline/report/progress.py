"""Shows what a job does while it runs: on a terminal one line that changes, elsewhere a line now and then.

`ProgressLine` asks a `Watch` what to show. It does so in a thread of its own, since the job's own thread
waits for Spark. When a step is over, a line about it stays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeAlias

from warren.pipeline.report.words import printable

Watch: TypeAlias = Callable[[], str]

TERMINAL_SECONDS = 0.5
OTHER_SECONDS = 5.0
CLEAR = "\r\x1b[K"


def no_news() -> str:
    return ""


class ProgressLine:
    """Writes to `stream`, or nothing at all if `stream` is None."""

    def __init__(self, stream: TextIO | None, *, seconds: float | None = None) -> None:
        self.stream = stream
        self.live = stream is not None and stream.isatty()
        self.seconds = seconds or (TERMINAL_SECONDS if self.live else OTHER_SECONDS)
        self.watch: Watch = no_news
        self.width = 0

    @contextmanager
    def step(self, name: str, watch: Watch | None = None) -> Iterator[None]:
        """A context in which the line shows the step's name, and the words of `watch`."""
        began, over = time.monotonic(), threading.Event()
        source = watch or self.watch
        thread = threading.Thread(target=self._run, args=(name, source, began, over), daemon=True)
        if self.stream is not None:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if self.stream is not None:
                thread.join()
                self._leave(f"{name}: {time.monotonic() - began:.1f} s")

    def say(self, text: str) -> None:
        """Write a line that stays."""
        if self.stream is not None:
            self._leave(text)

    def _run(self, name: str, watch: Watch, began: float, over: threading.Event) -> None:
        while not over.wait(self.seconds):
            news = watch()
            seconds = time.monotonic() - began
            self._show(f"{name}: {news + ', ' if news else ''}{seconds:.0f} s")

    def _show(self, text: str) -> None:
        assert self.stream is not None
        line = printable(text)
        self.stream.write(f"{CLEAR}{line}" if self.live else f"{line}\n")
        self.stream.flush()

    def _leave(self, text: str) -> None:
        assert self.stream is not None
        self.stream.write(f"{CLEAR if self.live else ''}{printable(text)}\n")
        self.stream.flush()
