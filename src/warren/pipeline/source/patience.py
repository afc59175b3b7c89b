"""How long a query may wait for new messages when Spark asks for them."""

from __future__ import annotations

import time

WAIT_SECONDS_MAX = 1.0


class Patience:
    """A query may wait as long as it has been idle, up to a bound. While batches run it does not wait at all:
    the query may have other sources with new messages, which would be held up.
    """

    def __init__(self) -> None:
        self._since: float | None = None  # when the query became idle; None while batches run

    def begin(self) -> None:
        """There were no new messages: the query is idle, if it was not already."""
        if self._since is None:
            self._since = time.monotonic()

    def end(self) -> None:
        """There are new messages, or a batch runs: the query is not idle any more."""
        self._since = None

    @property
    def seconds(self) -> float:
        """How long the query may wait now."""
        return 0.0 if self._since is None else min(time.monotonic() - self._since, WAIT_SECONDS_MAX)
