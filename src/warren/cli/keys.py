"""Single keys of a terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Self

READ_BYTES = 64


class Keys:
    """While it is entered, keys come one by one and are not shown. Ctrl-C works as ever."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._before: list[object] = []  # how the terminal was set

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]  # as it gave them

    def wait(self, seconds: float) -> str:
        """What was typed within this time, as soon as something is."""
        if not select.select([self._file], [], [], max(0.0, seconds))[0]:
            return ""
        return os.read(self._file, READ_BYTES).decode("utf-8", "ignore")
