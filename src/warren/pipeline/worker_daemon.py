"""PySpark's daemon of workers, changed to stay silent when Spark closes the connection of a worker.

An idle worker whose connection is closed tries to tell Spark so, and ends. Over TCP the message is lost
quietly; on a Unix socket sending it fails, and PySpark would print a stack for every worker that Spark lets
go.

Spark starts several daemons for its first query. Importing `warren` would double the time that each takes to
start, so this module is run as a file and not by its name.
"""

from __future__ import annotations

import socket

from pyspark import daemon

CLOSED = 1

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run a task. If the result is not 0, the process ends once its connection is closed."""
    try:
        return _work(sock, authenticated)
    except ConnectionError:  # only from Spark's connection: `_work` reports a task's own errors to Spark
        return CLOSED


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
