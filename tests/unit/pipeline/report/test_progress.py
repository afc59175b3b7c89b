"""Progress: one line that changes on a terminal, lines elsewhere, nothing if it is to be quiet."""

from __future__ import annotations

import io
import threading

from warren.pipeline.report.progress import CLEAR, ProgressLine


class Screen(io.StringIO):
    """A stream that may be a terminal, and sets an event when something is shown."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        if "of 4" in text:
            self.shown.set()
        return super().write(text)


def shown(*, terminal: bool) -> str:
    screen = Screen(terminal=terminal)
    progress = ProgressLine(screen, seconds=0.001)
    progress.watch = lambda: "3 of 4 tasks done"
    with progress.step("reading"):
        assert screen.shown.wait(10)
    return screen.getvalue()


def test_terminal_has_one_line_that_is_written_over() -> None:
    text = shown(terminal=True)
    assert text.startswith(f"{CLEAR}reading: 3 of 4 tasks done, 0 s")
    assert text.count("\n") == 1
    assert text.rpartition(CLEAR)[2].startswith("reading: ")


def test_elsewhere_each_news_is_a_line() -> None:
    text = shown(terminal=False)
    assert text.splitlines()[0] == "reading: 3 of 4 tasks done, 0 s"
    assert CLEAR not in text


def test_quiet_progress_writes_nothing() -> None:
    progress = ProgressLine(None)
    with progress.step("reading"):
        progress.say("something")
    assert not progress.live
