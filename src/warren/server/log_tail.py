"""The last lines of the log, kept in memory for those who ask for them, such as `warren log`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections import deque
from datetime import UTC, datetime
from itertools import islice

LINES_MAX = 1000
FIELDS_OF_LOGGING = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record of `logging` has; the rest are the fields of our event."""


class LogTail(logging.Filter):
    """Sees what is logged as a filter that lets everything pass: as a handler, it would keep a program that
    has set no handlers of its own from seeing warnings. Lines have numbers from 1 on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.last = 0  # the number of the newest line
        self._loop = loop
        self._lines: deque[dict[str, object]] = deque(maxlen=LINES_MAX)
        self._waiters: set[asyncio.Future[None]] = set()

    def attach(self, name: str = "warren") -> None:
        logging.getLogger(name).addFilter(self)

    def detach(self, name: str = "warren") -> None:
        logging.getLogger(name).removeFilter(self)
        self._wake()

    def filter(self, record: logging.LogRecord) -> bool:
        """Called for each line, by any thread."""
        self.last += 1
        self._lines.append(describe(record, self.last))
        if self._waiters:
            self._loop.call_soon_threadsafe(self._wake)
        return True

    def after(self, number: int, lines_max: int) -> list[dict[str, object]]:
        """The newest lines after this number, at most so many."""
        count = min(self.last - number, lines_max, len(self._lines))
        return list(islice(self._lines, len(self._lines) - count, None)) if count > 0 else []

    async def wait(self, number: int, seconds: float) -> None:
        """Wait until there is a line after this number, but no longer than so many seconds."""
        if self.last > number:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter, seconds)
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def describe(record: logging.LogRecord, number: int) -> dict[str, object]:
    """The line as it would be in a log of JSON lines, with its number."""
    line: dict[str, object] = {
        "number": number,
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": record.getMessage(),
    }
    for name, value in vars(record).items():
        if name not in FIELDS_OF_LOGGING:
            line[name] = value if isinstance(value, str | int | float | None) else str(value)
    if record.exc_info and record.exc_info[0] is not None:
        line["exception"] = "".join(traceback.format_exception(*record.exc_info))
    return line
