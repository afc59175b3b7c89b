"""The errors of test clients: the broker did not send what the test expects."""


class UnexpectedError(AssertionError):
    """The broker sent something else than the test expects."""


class SilenceError(UnexpectedError):
    """The broker sent nothing in time."""


class EndedError(UnexpectedError):
    """The broker closed the socket."""
