"""Errors of reading queues: each text is one line, with the option to change."""

from __future__ import annotations

from warren.pipeline.errors import PipelineError


class ReadError(PipelineError):
    """The text is shown to the user as it is."""


class BadOption(ReadError):
    """An option has a value that makes no sense, or does not go with the others."""


class UnknownQueue(ReadError):
    def __init__(self, vhost: str, queue: str) -> None:
        super().__init__(f"no queue '{queue}' in vhost '{vhost}': change the option subscribe, or vhost")


class Refused(ReadError):
    """The broker does not let this user log in or read."""


class Unreachable(ReadError):
    """There is no broker, or no data directory, where the options say."""


class Unreadable(ReadError):
    """There is a file or directory, but it cannot be read."""


class DataLoss(ReadError):
    """Messages that should be read are not there, or not any more."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; set failOnDataLoss to false to go on without them")
        self.what = what


class SegmentGone(Exception):
    """A segment was deleted since it was listed. The reader decides whether that is data loss."""
