"""The daemon of Spark's workers, as Spark's Java starts it and talks to it."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.source.checks import HIDE_STACK, in_a_sentence
from warren.pipeline.worker_front import DAEMON, script_for

LENGTH = struct.Struct("!i")
END_SECONDS_MAX = 120
SPARKS_SETTINGS = {
    "PYTHON_UNIX_DOMAIN_ENABLED": "true",
    "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    "SPARK_REUSE_WORKER": "1",
}


def test_worker_whose_connection_spark_closes_ends_without_a_word(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(script_for(sys.executable))
    python.chmod(0o755)
    with (
        tempfile.TemporaryDirectory() as sockets,  # a shorter name than that of a test's own directory
        subprocess.Popen(
            [python, "-m", DAEMON, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **SPARKS_SETTINGS, "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets},
        ) as daemon,
    ):
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        path = daemon.stdout.read(LENGTH.unpack(daemon.stdout.read(LENGTH.size))[0]).decode()
        with socket.socket(socket.AF_UNIX) as spark:
            spark.connect(path)
            worker = os.pidfd_open(LENGTH.unpack(spark.recv(LENGTH.size, socket.MSG_WAITALL))[0])
        assert select.select([worker], [], [], END_SECONDS_MAX)[0]
        os.close(worker)
        _, said = daemon.communicate(timeout=END_SECONDS_MAX)
    assert said.decode() == ""


@pytest.mark.parametrize("of_the_daemon", [True, False])
def test_error_for_the_user_hides_the_stack_in_workers_of_the_daemon_alone(
    monkeypatch: pytest.MonkeyPatch, *, of_the_daemon: bool
) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.delitem(sys.modules, DAEMON, raising=False)
    if of_the_daemon:
        monkeypatch.setitem(sys.modules, DAEMON, sys)

    with pytest.raises(PipelineError), in_a_sentence():
        raise PipelineError("told")

    assert (HIDE_STACK in os.environ) == of_the_daemon
