"""Brokers that go away while messages are moved, and come back."""

from __future__ import annotations

import time
from collections.abc import Callable

from warren.client.errors import ClosedByBrokerError, OutageError
from warren.pipeline.publisher import PublishError

OUTAGE_SECONDS_MAX = 120.0
"""How long a broker may be away: a RabbitMQ with many queues takes its time to start."""

AGAIN_SECONDS = 1.0
CONNECTION_FORCED = 320


class GivenUp(Exception):
    """A broker went away and did not come back; the text says which."""


def is_outage(error: BaseException | None) -> bool:
    """Whether the broker is not there, or shuts down, and may be back later."""
    if isinstance(error, PublishError):
        return is_outage(error.__cause__)
    if isinstance(error, ClosedByBrokerError):
        return error.code == CONNECTION_FORCED
    return isinstance(error, OutageError)


class Patience:
    """Waits while a broker is away, but not for ever."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._since: float | None = None  # when the broker went away; None while all are there

    def reset(self) -> None:
        """Both brokers are there."""
        self._since = None

    def wait(self, problem: str) -> None:
        """Wait a moment before another attempt; raise if the broker has been away for too long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= OUTAGE_SECONDS_MAX:
            raise GivenUp(f"{problem}; run the command again when it is back: it goes on where it was")
        self._progress(f"{problem}: trying again")
        time.sleep(AGAIN_SECONDS)
