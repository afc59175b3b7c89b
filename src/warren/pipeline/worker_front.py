"""A Python for Spark's workers that connects first and imports afterwards, and has our daemon of workers.

Spark gives the process that plans a stream 10 seconds from its start to connect, which no setting changes. It
imports PySpark before it does, 0.4 s of computing, and on a busy machine that may take longer than that. So a
script stands in front of Python, and has that one process begin here: `connect` needs next to nothing, and
hands the connection on to `work`, which is the process that Spark meant to start.

The script puts `worker_daemon` in the place of PySpark's daemon, too: Spark's setting for that does not hold
for the processes that plan.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
CONNECTION = "WARREN_WORKER_CONNECTION"
DAEMON = "pyspark.daemon"
RUN = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
"""Runs a file as `-m` does a module, with the working directory on the path, but without its packages."""

SCRIPT = """\
#!/bin/sh
# Has the process that plans a stream connect to Spark before it imports anything, and workers be silent
# when Spark lets them go.
case "$1 $2" in
"-m {runner}")
    exec {python} -I -S -B {front} ;;
"-m {daemon}")
    shift 2
    exec {python} -c {run} {own_daemon} "$@" ;;
esac
exec {python} "$@"
"""


def script_for(python: str) -> str:
    """The script in front of this Python."""
    import shlex  # noqa: PLC0415 - not before there is a connection
    from pathlib import Path  # noqa: PLC0415

    here = Path(__file__).resolve().parent
    return SCRIPT.format(
        runner=RUNNER,
        daemon=DAEMON,
        run=shlex.quote(RUN),
        own_daemon=shlex.quote(str(here / "worker_daemon.py")),
        python=shlex.quote(python),
        front=shlex.quote(str(here / "worker_front.py")),
    )


def connect() -> None:
    """Runs without site-packages: it can import no more than Python's own modules."""
    try:
        handle = _connection()
    except OSError:
        arguments = ["-m", RUNNER]  # says what is wrong, as if there were no front
    else:
        os.environ[CONNECTION] = str(handle)
        arguments = ["-m", "warren.pipeline.worker_front"]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - this Python


def _connection() -> int:
    """A socket on which Spark knows us, as `get_sock_file_to_executor` of PySpark makes one."""
    path, secret = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"), b""
    if path:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
    else:
        host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
        connection = socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
        secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
        connection.sendall(struct.pack("!i", len(secret)) + secret)
        if connection.recv(6, socket.MSG_WAITALL) != struct.pack("!i", 2) + b"ok":
            raise ConnectionRefusedError
    connection.sendall(struct.pack("!i", os.getpid()))
    os.set_inheritable(connection.fileno(), True)
    return connection.detach()


def work() -> None:
    """What Spark meant to start, on the connection that is there already."""
    import runpy  # noqa: PLC0415 - as all that follows, not before there is a connection
    from collections.abc import Iterator  # noqa: PLC0415
    from contextlib import contextmanager  # noqa: PLC0415
    from typing import IO, cast  # noqa: PLC0415

    from pyspark import worker_util  # noqa: PLC0415

    handle = int(os.environ.pop(CONNECTION))

    @contextmanager
    def connected(timeout: int | None = None) -> Iterator[IO[bytes]]:  # noqa: ARG001 - it waits for ever
        connection = socket.socket(fileno=handle)
        connection.set_inheritable(False)
        with (
            connection,
            connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))) as file,
        ):
            yield cast("IO[bytes]", file)

    worker_util.get_sock_file_to_executor = connected
    runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    work() if CONNECTION in os.environ else connect()
