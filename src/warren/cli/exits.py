"""The exit codes of the commands over the HTTP API."""

REFUSED = 1  # the broker refused, or something failed
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130
