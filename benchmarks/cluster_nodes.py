"""Clusters of three nodes for `benchmarks.cluster`: of ours with an etcd, and of RabbitMQ.

Each is in a directory of its own. Its nodes are process groups that can be killed, paused, stopped and
started again, and then listen where they did before.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from benchmarks.cluster_hosts import HUB, Host
from benchmarks.compare import RABBITMQ, WARREN, CompareError, stop

START_SECONDS_MAX = 120
LOOK_SECONDS = 0.05
COOKIE = "benchmark"
PORTS = (20_000, 32_000)  # below those of outgoing connections
SETTINGS = 'cluster_replicate = "quorum"\nloopback_users = ["none"]\n'
RABBITMQ_SETTINGS = """
loopback_users = none
cluster_formation.peer_discovery_backend = classic_config
"""


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise CompareError(f"{what}: not within {START_SECONDS_MAX} s")
        time.sleep(LOOK_SECONDS)


def free_port() -> int:
    """One that the kernel gives to nobody who connects: a node has to get it again when it starts again."""
    while True:
        port = random.randrange(*PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


class ClusterNode:
    """One node, as a group of processes."""

    def __init__(self, host: Host, command: Sequence[str], env: dict[str, str], log: Path, port: int) -> None:
        self.host = host
        self.port = port  # for AMQP
        self.uri = f"amqp://guest:guest@{host.address}:{port}/"
        self._command = [*host.enter, *command]
        self._env = env
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def wait_until_it_listens(self) -> None:
        process = self._process
        assert process is not None

        def is_there() -> bool:
            if process.poll() is not None:
                tail = self._log.read_text()[-2000:].strip()
                raise CompareError(f"a node ended with {process.returncode}: {tail}")
            return listens(self.host.address, self.port)

        wait_until(is_there, f"a node listens at {self.host.address}:{self.port}")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            stop(self._process)

    def start_again(self) -> None:
        """After it was killed or told to stop."""
        assert self._process is not None
        self._process.wait(START_SECONDS_MAX)
        self.start()
        self.wait_until_it_listens()


class Cluster(ABC):
    """Starts on entering, and is whole then."""

    name: str

    def __init__(self, directory: Path, hosts: Sequence[Host]) -> None:
        self.directory = directory
        self.hosts = hosts
        self.nodes: list[ClusterNode] = []
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.push(self.__exit__)
            self.prepare()
            for node in self.nodes:
                self.stack.callback(node.end)
                node.start()
            for node in self.nodes:
                node.wait_until_it_listens()
            self.wait_until_whole()
            undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        for node in self.nodes:
            with contextlib.suppress(AssertionError, ProcessLookupError):  # it was not started, or has ended
                node.signal(signal.SIGTERM)  # all at once: to wait for one after the other takes longer
        self.stack.close()

    def run_beside(self, command: Sequence[str], log: Path, env: dict[str, str] | None = None) -> None:
        """Run a process until the cluster ends."""
        with log.open("a") as output:
            process = subprocess.Popen(
                command, env=env, stdout=output, stderr=output, text=True, start_new_session=True
            )
        self.stack.callback(stop, process)

    @abstractmethod
    def prepare(self) -> None:
        """Make what the nodes need, and the nodes."""

    @abstractmethod
    def wait_until_whole(self) -> None:
        """All nodes are there and have everything."""


class OurCluster(Cluster):
    name = "WarrenMQ"

    def prepare(self) -> None:
        address = HUB if self.hosts[0].enter else self.hosts[0].address
        client, peers = (f"http://{address}:{free_port()}" for _ in range(2))
        self.etcd = client
        self.run_beside(
            [
                "etcd",
                "--name=etcd",
                f"--data-dir={self.directory}/etcd",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=etcd={peers}",
            ],
            self.directory / "etcd.log",
        )
        wait_until(lambda: listens(address, int(client.rpartition(":")[2])), "etcd listens")
        config = self.directory / "warren.toml"
        config.write_text(SETTINGS)
        self.nodes = [self._node(number, host, config) for number, host in enumerate(self.hosts)]

    def _node(self, number: int, host: Host, config: Path) -> ClusterNode:
        port, name = free_port(), f"node{number}"
        command = [
            *WARREN,
            "serve",
            f"--config={config}",
            f"--data-dir={self.directory}/{name}",
            f"--bind={host.address}",
            f"--port={port}",
            "--http-port=-1",
            "--cluster=benchmark",
            f"--node={name}",
            f"--etcd={self.etcd}",
            f"--peers-bind={host.address}:{free_port()}",
            "--log-level=warning",
        ]
        return ClusterNode(host, command, dict(os.environ), self.directory / f"{name}.log", port)

    def wait_until_whole(self) -> None:
        wait_until(self._is_whole, "all shards have a leader and three members")

    def _is_whole(self) -> bool:
        records = [
            json.loads(value) for key, value in self._values() if key.rpartition("/")[0][-6:] == "shards"
        ]
        return bool(records) and all(
            record["leader"] is not None and len(record["isr"]) == len(self.nodes) for record in records
        )

    def _values(self) -> list[tuple[str, str]]:
        """All keys of etcd with what they have."""
        everything = base64.b64encode(b"\0").decode()
        body = json.dumps({"key": everything, "range_end": everything}).encode()
        with urllib.request.urlopen(f"{self.etcd}/v3/kv/range", body) as answer:  # noqa: S310 - our own etcd
            found = json.load(answer).get("kvs", [])
        return [
            (base64.b64decode(each["key"]).decode(), base64.b64decode(each["value"]).decode())
            for each in found
        ]


class RabbitMQCluster(Cluster):
    name = "RabbitMQ"

    def prepare(self) -> None:
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(COOKIE)
        cookie.chmod(0o400)
        (self.directory / "plugins").write_text("[].")
        self.port_mapper = free_port()
        for host in dict.fromkeys(self.hosts):  # all nodes of a host share one
            command = [*host.enter, "epmd", "-port", str(self.port_mapper), "-address", host.address]
            self.run_beside(command, self.directory / "epmd.log")
        names = [f"node{number}@{host.address}" for number, host in enumerate(self.hosts)]
        config = self.directory / "rabbitmq.conf"
        config.write_text(
            RABBITMQ_SETTINGS
            + "".join(
                f"cluster_formation.classic_config.nodes.{number} = {name}\n"
                for number, name in enumerate(names, 1)
            )
        )
        self.nodes = [self._node(name, host) for name, host in zip(names, self.hosts, strict=True)]

    def _node(self, name: str, host: Host) -> ClusterNode:
        port, directory = free_port(), self.directory / name
        directory.mkdir()
        env = self._environment() | {
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_NODE_IP_ADDRESS": host.address,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface "
            f"{{{host.address.replace('.', ',')}}}",
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
        }
        return ClusterNode(host, [str(RABBITMQ)], env, directory / "errors", port)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.directory),
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq"),
            "ERL_EPMD_PORT": str(self.port_mapper),
        }

    def wait_until_whole(self) -> None:
        name = f"node0@{self.hosts[0].address}"
        words = ["--longnames", "-n", name, "await_online_nodes", str(len(self.nodes)), "--timeout", "60"]
        command = [*self.hosts[0].enter, str(RABBITMQ.with_name("rabbitmqctl")), *words]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompareError(f"RabbitMQ's nodes do not find each other: {done.stderr.strip()}")


CLUSTERS: tuple[type[Cluster], ...] = (RabbitMQCluster, OurCluster)
