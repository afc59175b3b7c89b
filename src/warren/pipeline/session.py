"""Opens a Spark session that is ready for the data source `warren`, on any Spark.

On `local[*]` and other masters the driver is a Java process that belongs to this process. With Spark Connect
the driver runs elsewhere already, and only those settings are made that may change while it runs. Spark finds
the data source by itself, since `pyspark_warren` is installed with this package. A cluster's machines and a
Connect server need `warrenmq[spark]` too, because readers and writers run there.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from warren.pipeline import worker_front
from warren.pipeline.errors import PipelineError
from warren.pipeline.java import java_home
from warren.pipeline.scripts import script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SECONDS_MAX = 10
PORTS = {"spark": 7077, "sc": 15002, "https": 443, "http": 80}
TIMESTAMP_CONF = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Spark 4.3's default for times is INT96, which has no statistics, and which others read without a zone."""

SQL_CONF = TIMESTAMP_CONF | {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}
"""Settings that the data source and the jobs rely on, on any Spark. The last one: a query that is killed
while it writes its first offsets leaves a temporary file in its checkpoint, and Spark would refuse to start
it again.
"""

OWN_CONF = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.network.timeout": "600s",
    "spark.executor.heartbeatInterval": "60s",
    "spark.sql.broadcastTimeout": "3600s",
}
"""Settings of a Spark that we start. The timeouts are long: a busy machine is slow, but not dead."""

LOCAL_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
}
SOCKET_NAME_BYTES = 42  # the length of the names that Spark gives to sockets
SOCKET_PATH_BYTES_MAX = 103  # the longest path of a socket that every system allows
PYTHON, JAVA_OPTIONS = "spark.pyspark.python", "spark.driver.extraJavaOptions"
WORKER_PYTHON, DRIVER_PYTHON = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Turns off Arrow's check of every index, about 9 % of Java's time: Spark asks for none out of bounds."""


def open_session(
    *,
    app_name: str,
    master: str = "local[*]",
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on `master`, or through Spark Connect on `remote`; `conf` overrides what is set here."""
    _need_spark()
    _silence_query_log()
    given = dict(conf or {})
    return _connect(app_name, remote, given) if remote else _start(app_name, master, given)


def _need_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise PipelineError("the data pipeline needs Spark: pip install 'warrenmq[spark]'")


def _silence_query_log() -> None:
    """PySpark writes errors of queries to stderr, as JSON, besides raising them."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - an extra

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _connect(app_name: str, remote: str, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

    _check_answers(remote, "--remote")
    builder = SparkSession.builder.remote(remote).appName(app_name)
    for name, value in (SQL_CONF | conf).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.version  # noqa: B018 - the first thing asked of the server
    except Exception as error:  # Spark and gRPC raise anything
        raise PipelineError(f"Spark does not answer at --remote {remote}: {_first_line(error)}") from error
    return session


def _start(app_name: str, master: str, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

    local = master.startswith("local")
    if not local and "://" in master:
        _check_answers(master, "--master")
    python = conf.get(PYTHON) or os.environ.get(WORKER_PYTHON) or sys.executable
    pythons = {WORKER_PYTHON: python, DRIVER_PYTHON: sys.executable}
    if local:
        pythons = {name: _fronted(python) for name, python in pythons.items()}
    _part_with_others(python, pythons)
    with _quiet_log() as log_options, _surroundings(pythons, local=local):
        settings = SQL_CONF | OWN_CONF | (LOCAL_CONF | _socket_conf() if local else {}) | conf
        settings[JAVA_OPTIONS] = f"{log_options} {ARROW_OPTIONS} {settings.get(JAVA_OPTIONS, '')}".strip()
        builder = SparkSession.builder.master(master).appName(app_name)
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            return builder.getOrCreate()
        except Exception as error:  # Spark and its gateway raise anything
            raise PipelineError(f"Spark does not start on --master {master}: {_first_line(error)}") from error


def _fronted(python: str) -> str:
    """A script that runs this Python: see `worker_front`. Only for workers on this machine."""
    text = worker_front.script_for(python)
    return str(script("python", "python", text, os.environ))


def _socket_conf() -> dict[str, str]:
    """Have Java and the workers on this machine talk over Unix sockets, which cost less than TCP. Spark
    trusts everyone who can open such a socket, so they are in a directory that only this user can enter.
    """
    if not hasattr(socket, "AF_UNIX"):
        return {}
    directory = _socket_directory(os.getpid())
    if len(os.fsencode(directory)) + 1 + SOCKET_NAME_BYTES > SOCKET_PATH_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


@functools.cache
def _socket_directory(process: int) -> str:
    """One directory for all sessions of a process, removed when the process ends."""
    directory = tempfile.mkdtemp(prefix="warren-spark-")

    def remove() -> None:
        if os.getpid() == process:  # a fork of the process must not remove it
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory


def _part_with_others(python: str, pythons: Mapping[str, str]) -> None:
    """End a Java that was started with other Pythons, or refuse if a session runs on it.

    The workers' Python is fixed when Spark's Java starts. Java outlives a session that was stopped, in a
    notebook for instance, and the next session would run on it with that Python. `pythons` are the wanted
    ones by environment variable, possibly each a script from `_fronted`.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - an extra

    running, gateway = SparkContext._active_spark_context, SparkContext._gateway
    suited = {shutil.which(python), shutil.which(pythons[WORKER_PYTHON])}
    if running is not None and shutil.which(running.pythonExec) not in suited:
        raise PipelineError(
            f"a Spark session runs here already, whose workers have another Python, {running.pythonExec}: "
            f"stop() it first, or set {WORKER_PYTHON}={python} before it starts"
        )
    if running is None and gateway is not None:
        environment = gateway.jvm.System.getenv()
        if any(environment.get(name) != wanted for name, wanted in pythons.items()):
            gateway.shutdown()
            gateway.proc.stdin.close()  # Java ends when its input does
            gateway.proc.wait()
            SparkContext._gateway = SparkContext._jvm = None


def _check_answers(url: str, option: str) -> None:
    """Fail soon if nobody listens at the URL: Spark itself would try for a minute, and then print a lot.

    Several masters, for high availability, are one URL with commas; it is enough that one of them answers.
    """
    scheme, _, hosts = url.removeprefix("k8s://").rpartition("://")
    reasons = [_reason_for_silence(scheme, host) for host in hosts.split(",")]
    if all(reasons):
        raise PipelineError(f"nobody answers at {option} {url}: {reasons[0]}")


def _reason_for_silence(scheme: str, host: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        address = (parts.hostname or "", parts.port or PORTS.get(scheme, PORTS["https"]))
        socket.create_connection(address, timeout=CONNECT_SECONDS_MAX).close()
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


@contextlib.contextmanager
def _quiet_log() -> Iterator[str]:
    """Options for Java that silence Spark's log from the start, before the session exists."""
    with as_file(files("warren.pipeline") / "log4j2.properties") as path:
        yield f"-Dlog4j2.configurationFile={path.resolve().as_uri()}"


@contextlib.contextmanager
def _surroundings(pythons: Mapping[str, str], *, local: bool) -> Iterator[None]:
    """Set the environment variables that Spark's launcher reads, while Spark starts.

    Among them is the workers' Python: without it, Spark would take the first on the PATH, which may not have
    this package.
    """
    wanted = {**pythons, "JAVA_HOME": str(java_home())}
    if local:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _first_line(error: BaseException) -> str:
    """The message of the first exception in the text: Spark's texts are long, and end in a stack of Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = [line for line in lines if line.startswith((":", "Caused by:")) or "Exception:" in line]
    return re.sub(r"^(: |Caused by: )?([\w.$]+(Exception|Error): )?", "", (told or lines)[0])
