"""The log of a broker, line by line, over its HTTP API, which answers when a line comes."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from warren.client.api import Api
from warren.client.http_url import parse_http_url

WAIT_SECONDS_MAX = 60


class LogLines:
    """The lines behind a number; without one, from now on."""

    def __init__(self, http_url: str, after: int | None = None) -> None:
        self.api = Api(parse_http_url(http_url))
        self.last: int = self.api.get("log", query={"lines": "0"})["last"] if after is None else after

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.api.close()

    def wait_for(self, event: str) -> None:
        """Wait for the next line about this event."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            answer = self.api.get("log", query={"after": str(self.last), "wait_ms": "5000"})
            self.last = answer["last"]
            if any(line["event"] == event for line in answer["lines"]):
                return
        raise AssertionError(f"no line about '{event}' in the log")
