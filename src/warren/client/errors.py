"""What ends a client's work, worded for the person who started it."""

from __future__ import annotations


class ClientError(Exception):
    """It cannot go on; the text is the one line that says why."""


class ClosedByBrokerError(ClientError):
    """The broker closed a channel or the connection and said why."""

    def __init__(self, what: str, code: int, text: str) -> None:
        super().__init__(f"the broker closed the {what}: {code} {text}")
        self.code = code
