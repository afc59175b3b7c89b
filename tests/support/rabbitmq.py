"""A real RabbitMQ for tests, from Debian's package: on ports of its own, with its management API."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

import pytest

from tests.support.process import Address

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
TRY_AGAIN_SECONDS = 0.25

needs_rabbitmq = pytest.mark.skipif(not SERVER.exists(), reason="Debian's rabbitmq-server is not installed")


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


class RabbitMQ:
    """Starts on entering; on leaving it is ended, with the port mapper that Erlang starts beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = Address("127.0.0.1", free_port())
        self.http_port = free_port()
        self.mapper_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def http_url(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.http_port}"

    def environment(self) -> dict[str, str]:
        own = self.directory
        return {
            **os.environ,
            "HOME": str(own),
            "ERL_EPMD_PORT": str(self.mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.address.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.address.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(own / "mnesia"),
            "RABBITMQ_LOG_BASE": str(own / "log"),
            "RABBITMQ_PID_FILE": str(own / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(own / "rabbitmq.conf"),
        }

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True)
        (self.directory / "plugins").write_text("[rabbitmq_management].")
        (self.directory / "rabbitmq.conf").write_text(
            f"management.tcp.port = {self.http_port}\nmanagement.tcp.ip = 127.0.0.1\n"
            "collect_statistics_interval = 1000\n"
        )
        with (self.directory / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [str(SERVER)],
                env=self.environment(),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        """The management API is the last to be there."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.directory / "output").read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/", timeout=5).close()
            except (OSError, urllib.error.URLError):
                time.sleep(TRY_AGAIN_SECONDS)
            else:
                return
        raise AssertionError("RabbitMQ did not start")

    def __exit__(self, *exception: object) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        mapper = shutil.which("epmd")
        if mapper is not None:
            subprocess.run([mapper, "-kill"], env=self.environment(), capture_output=True, check=False)
