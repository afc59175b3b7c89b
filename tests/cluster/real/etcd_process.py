"""A real etcd as a process that a test can kill, pause and start again."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

from warren.server.cluster.local_etcd import free_port

START_SECONDS_MAX = 60.0
ASK_SECONDS = 0.05
LOOPBACK = "127.0.0.1"


class EtcdProcess:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = free_port()
        self.peers = f"http://{LOOPBACK}:{free_port()}"
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        self.launch()
        return self

    def launch(self) -> None:
        """Return when it answers."""
        with self.path.with_suffix(".etcd.log").open("a") as log:
            self.process = subprocess.Popen(
                [
                    "etcd",
                    f"--data-dir={self.path}",
                    f"--listen-client-urls={self.endpoint}",
                    f"--advertise-client-urls={self.endpoint}",
                    f"--listen-peer-urls={self.peers}",
                    f"--initial-advertise-peer-urls={self.peers}",
                    f"--initial-cluster=default={self.peers}",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            assert time.monotonic() < deadline, "etcd does not start"
            assert self.process.poll() is None, "etcd has ended"
            time.sleep(ASK_SECONDS)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return b'"true"' in connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.go_on()
            self.kill()
