"""Ctrl-C and SIGTERM as a flag, so that a run ends between two turns and still has its results."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class Interrupt:
    """While entered, the signals only set `requested`; on leaving, their former handlers are back."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
