"""A real RabbitMQ with its management API, if Debian's package is installed; on ports and in a directory of
its own.
"""

from __future__ import annotations

import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare import (
    RABBITMQ,
    TRY_AGAIN_SECONDS,
    free_port,
    rabbitmq_environment,
    running,
    stop_port_mapper,
)

START_SECONDS_MAX = 180
IS_INSTALLED = RABBITMQ.exists()


@dataclass(frozen=True)
class RabbitMQ:
    """Where it listens."""

    port: int
    http_url: str

    def amqp_url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"


@contextlib.contextmanager
def run_rabbitmq(directory: Path) -> Iterator[RabbitMQ]:
    directory.mkdir()
    port, http_port = free_port(), free_port()
    env = rabbitmq_environment(directory)
    (directory / "plugins").write_text("[rabbitmq_management,rabbitmq_shovel_management].")
    config = directory / "rabbitmq.conf"
    config.write_text(f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {http_port}\n")
    env |= {
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(config),
    }
    log = directory / "errors"
    with contextlib.ExitStack() as stack:
        stack.callback(stop_port_mapper, env)
        stack.enter_context(running([str(RABBITMQ)], env, log))
        found = RabbitMQ(port, f"http://127.0.0.1:{http_port}")
        _wait_for_http(found.http_url, log)
        yield found


def _wait_for_http(url: str, log: Path) -> None:
    """Wait until the API answers, be it that a login is needed: then the broker is ready, too."""
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
