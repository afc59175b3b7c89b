"""What can be wrong when queues are read: in one line, with the option to change."""

from __future__ import annotations

from warren.pipeline.errors import PipelineError


class ReadError(PipelineError):
    """For the user, as it is."""


class BadOption(ReadError):
    """An option cannot mean what it says."""


class UnknownQueue(ReadError):
    def __init__(self, vhost: str, queue: str) -> None:
        super().__init__(f"no queue '{queue}' in vhost '{vhost}': change the option subscribe, or vhost")


class Refused(ReadError):
    """The broker does not let this user do that."""


class Unreachable(ReadError):
    """There is no broker, or no data directory, where the options say."""


class Unreadable(ReadError):
    """There is something, but it cannot be read."""


class DataLoss(ReadError):
    """Messages that should be read are not there, or not any more."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; set failOnDataLoss to false to go on without them")
        self.what = what


class SegmentGone(Exception):
    """It was deleted since it was listed; what that means is for the reader to say."""
