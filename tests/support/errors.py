"""How what a broker sends can differ from what a test waits for."""


class UnexpectedError(AssertionError):
    """The broker sent something else than what the test waits for."""


class SilenceError(UnexpectedError):
    """The broker sent nothing in time."""


class EndedError(UnexpectedError):
    """The broker closed the socket."""
