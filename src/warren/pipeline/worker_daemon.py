"""Spark's daemon of Python workers, which stays silent when Spark closes the connection of a worker.

An idle worker that finds its connection closed tries to tell Spark, and ends. Over TCP that goes nowhere; on
a Unix socket it is an error, and PySpark would print its stack for every worker that Spark lets go.

Spark starts several daemons for its first query. This is run as a file, since the imports of `warren` would
cost each of them twice the time.
"""

from __future__ import annotations

import socket

from pyspark import daemon

CLOSED = 1

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run a task. If the answer is not 0, the process ends once its connection is closed."""
    try:
        return _work(sock, authenticated)
    except ConnectionError:  # of the connection alone: errors of tasks are told to Spark, and not raised
        return CLOSED


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
