"""How long a query's look for news may take."""

from __future__ import annotations

import time

WAIT_SECONDS_MAX = 1.0


class Patience:
    """As long as there were none, up to a bound. While batches run it does not wait at all: it would hold up
    the query, which may have other sources that have some.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self) -> None:
        """A look found no news."""
        if self._since is None:
            self._since = time.monotonic()

    def end(self) -> None:
        """Something happens."""
        self._since = None

    @property
    def seconds(self) -> float:
        return 0.0 if self._since is None else min(time.monotonic() - self._since, WAIT_SECONDS_MAX)
