"""Real members of etcd as processes that a test can kill, pause and start again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from warren.server.cluster.local_etcd import free_port

START_SECONDS_MAX = 60.0
ASK_SECONDS = 0.05
LOOPBACK = "127.0.0.1"


class EtcdProcess:
    """One member. Starts on entering, and is killed on leaving.

    `within` is a command that runs the one which follows it, in another network say.
    """

    def __init__(
        self,
        path: Path,
        *flags: str,
        scheme: str = "http",
        host: str = LOOPBACK,
        ports: tuple[int, int] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.name = path.name
        self.flags = flags
        self.host = host
        self.port, peer_port = ports or (free_port(), free_port())
        self.within = within
        self.peers = f"http://{host}:{peer_port}"
        self.endpoint = f"{scheme}://{host}:{self.port}"
        self.all_members = f"{self.name}={self.peers}"

    def __enter__(self) -> Self:
        self.launch()
        return self

    def launch(self) -> None:
        """Return when it answers."""
        self.spawn()
        self.wait_until_it_answers()

    def spawn(self) -> None:
        with self.path.with_suffix(".etcd.log").open("a") as log:
            self.process = subprocess.Popen(
                [
                    *self.within,
                    "etcd",
                    f"--name={self.name}",
                    f"--data-dir={self.path}",
                    f"--listen-client-urls={self.endpoint}",
                    f"--advertise-client-urls={self.endpoint}",
                    f"--listen-peer-urls={self.peers}",
                    f"--initial-advertise-peer-urls={self.peers}",
                    f"--initial-cluster={self.all_members}",
                    *self.flags,
                ],
                stdout=log,
                stderr=log,
            )

    def wait_until_it_answers(self) -> None:
        """It listens when it is a member of a cluster that has a leader."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._listens():
            assert time.monotonic() < deadline, "etcd does not start"
            assert self.process.poll() is None, "etcd has ended"
            time.sleep(ASK_SECONDS)

    def _listens(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=5).close()
        except OSError:
            return False
        return True

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


def members_of(path: Path, count: int) -> list[EtcdProcess]:
    """Members of one cluster, which are not started."""
    members = [EtcdProcess(path / f"member{number}") for number in range(count)]
    for member in members:
        member.all_members = ",".join(f"{each.name}={each.peers}" for each in members)
    return members
