"""Spark clusters for tests: other processes on this machine, which a driver takes for Sparks elsewhere."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from warren.pipeline.java import java_home

START_SECONDS_MAX = 100
STOP_SECONDS_MAX = 20
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DAEMON_MEMORY = "512m"  # for a Connect server this overrides its configuration
HOME = Path(pyspark.__file__).parent


@contextlib.contextmanager
def standalone_master(place: Path, *, workers: int = 2) -> Iterator[str]:
    """Run a master with this many workers, of one core each; yields its URL."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    where = ["--host", "127.0.0.1", "--webui-port", "0"]
    share = ["--cores", "1", "--memory", "1g"]
    with contextlib.ExitStack() as running:
        master = [f"{package}.master.Master", *where, "--port", str(port)]
        process = running.enter_context(_process("spark-class", *master, log=place / "master.log"))
        wait_for(port, process, place / "master.log")
        for number in range(workers):
            words = [*where, *share, "--work-dir", str(place / f"worker-{number}"), url]
            log = place / f"worker-{number}.log"
            running.enter_context(_process("spark-class", f"{package}.worker.Worker", *words, log=log))
        yield url


@contextlib.contextmanager
def connect_server(place: Path) -> Iterator[str]:
    """Run a server of Spark Connect with two cores; yields its URL."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    words = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    with _process("spark-submit", *words, "spark-internal", log=place / "connect.log") as process:
        wait_for(port, process, place / "connect.log")
        yield f"sc://127.0.0.1:{port}"


@contextlib.contextmanager
def _process(program: str, *words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    surroundings = {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(HOME / "bin" / program), *words]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=os.environ | surroundings, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that the kernel chose a moment ago. Spark has to be given one that its clients know."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
