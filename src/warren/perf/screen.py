"""Shows a run: a line that is rewritten every second, and at the end a table or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TextIO, TypeAlias

from warren.perf.results import LoadResult

LIVE_SECONDS = 1.0
Show: TypeAlias = Callable[[str], None]
"""A function that shows a line about the progress of a run; called every `LIVE_SECONDS`."""

ERASE_LINE = "\r\x1b[K"


class Screen:
    """The tool's standard output. The live line is shown on terminals only, and not together with JSON."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out = out
        self._as_json = as_json
        self._live = out.isatty() and not as_json

    def show(self, line: str) -> None:
        if self._live:
            self._out.write(f"{ERASE_LINE}{line}")
            self._out.flush()

    def result(self, result: LoadResult) -> None:
        self.clear()
        if self._as_json:
            self._out.write(json.dumps(result.as_json()) + "\n")
            return
        rows = result.rows()
        width = max(len(name) for name, _ in rows)
        self._out.writelines(f"{name:<{width}}   {value}\n" for name, value in rows)

    def clear(self) -> None:
        if self._live:
            self._out.write(ERASE_LINE)
            self._out.flush()
