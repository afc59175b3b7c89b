"""A real RabbitMQ with its management API, if Debian's package is installed; on ports and in a directory of
its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.compare import (
    RABBITMQ,
    TRY_AGAIN_SECONDS,
    free_port,
    rabbitmq_environment,
    stop,
    stop_port_mapper,
)

from tests.support.process import Address
from warren.client.dialogue import PROTOCOL_HEADER

START_SECONDS_MAX = 180
IS_INSTALLED = RABBITMQ.exists()


class RabbitMQ:
    """A RabbitMQ with these plugins besides that of the management API. It can be killed and started again:
    then it listens where it did before.
    """

    def __init__(self, directory: Path, *plugins: str) -> None:
        directory.mkdir()
        self.log = directory / "errors"
        self.port, http_port = free_port(), free_port()
        self.http_url = f"http://127.0.0.1:{http_port}"
        self.env = rabbitmq_environment(directory)
        (directory / "plugins").write_text(f"[{','.join(('rabbitmq_management', *plugins))}].")
        config = directory / "rabbitmq.conf"
        config.write_text(f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {http_port}\n")
        self.env |= {
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(config),
        }

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    def amqp_url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        with self.log.open("a") as errors:
            self.process = subprocess.Popen(
                [str(RABBITMQ)],
                env=self.env,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        _wait_for_http(self.http_url, self.log)
        _wait_for_amqp(self.port, self.log)

    def kill(self) -> None:
        """SIGKILL for all of its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        stop(self.process)
        stop_port_mapper(self.env)


@contextlib.contextmanager
def run_rabbitmq(directory: Path, *plugins: str) -> Iterator[RabbitMQ]:
    rabbitmq = RabbitMQ(directory, *plugins)
    try:
        rabbitmq.start()
        yield rabbitmq
    finally:
        rabbitmq.stop()


def _wait_for_http(url: str, log: Path) -> None:
    """Wait until the API answers, be it that a login is needed."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/api/whoami"):  # noqa: S310 - our own RabbitMQ
                return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(TRY_AGAIN_SECONDS)
    raise AssertionError(f"RabbitMQ did not start: {log.read_text()}")


def _wait_for_amqp(port: int, log: Path) -> None:
    """Wait until the broker speaks AMQP: while it starts, it hangs up on clients."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(PROTOCOL_HEADER)
            if client.recv(1):
                return
        time.sleep(TRY_AGAIN_SECONDS)
    raise AssertionError(f"RabbitMQ did not speak AMQP: {log.read_text()}")
