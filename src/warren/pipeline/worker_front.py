"""A Python for Spark's workers that connects to Spark before it imports PySpark, and runs `worker_daemon`.

Spark gives the process that plans a stream 10 seconds from its start to connect, which no setting changes.
That process imports PySpark first: 0.4 s of computing, which may take more than 10 s on a busy machine. So
Spark gets a script as its Python, and the script starts that one process here: `connect` imports next to
nothing, connects, and replaces itself with `work`, which runs what Spark meant to start.

The script also starts `worker_daemon` instead of PySpark's daemon: Spark has a setting for that, but ignores
it for the processes that plan.
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
"""Runs a file with the working directory on the path, as `-m` does, but without importing its packages."""

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
    """Connect, and go on as `work`. This runs without site-packages: only the standard library is there."""
    try:
        handle = _connection()
    except OSError:
        arguments = ["-m", RUNNER]  # PySpark's own module fails likewise, and reports it as Spark expects
    else:
        os.environ[CONNECTION] = str(handle)
        arguments = ["-m", "warren.pipeline.worker_front"]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - this Python


def _connection() -> int:
    """A socket on which we have logged in to Spark, as PySpark's `get_sock_file_to_executor` does."""
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
    """Run the module that Spark meant to start, on the connection that `connect` made."""
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
