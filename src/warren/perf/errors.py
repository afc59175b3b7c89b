"""What ends a run of the load tool, worded for the person who started it."""

from __future__ import annotations


class PerfError(Exception):
    """The run cannot go on; the text is the one line that says why."""


class ClosedByBrokerError(PerfError):
    """The broker closed a channel or the connection and said why."""

    def __init__(self, what: str, code: int, text: str) -> None:
        super().__init__(f"the broker closed the {what}: {code} {text}")
        self.code = code
