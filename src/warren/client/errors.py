"""The errors that end a client's work, worded for the person who started it."""

from __future__ import annotations


class ClientError(Exception):
    """The client cannot go on; the text says why, in one line."""


class OutageError(ClientError):
    """The broker is not there, or went away: it may be back later."""


class ClosedByBrokerError(ClientError):
    """The broker closed a channel or the connection and said why."""

    def __init__(self, what: str, code: int, text: str) -> None:
        super().__init__(f"the broker closed the {what}: {code} {text}")
        self.code = code
