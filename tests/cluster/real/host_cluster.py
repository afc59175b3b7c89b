"""A cluster on three hosts: on each of them a broker and a member of etcd. Whatever can happen to a machine
can be done to one of them.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import RESOURCE_LOCKED, close, comes_true
from tests.cluster.real.etcd_process import EtcdProcess
from tests.cluster.real.hosts import Host, Network
from tests.cluster.real.http_client import HttpClient
from tests.support.process import Address, BrokerProcess
from warren.cluster.config import ShardRecord, read_record

NAMES = ("a", "b", "c")
AMQP, HTTP, PEERS, ETCD, ETCD_PEERS = 5672, 15672, 5680, 2379, 2380
PREFIX = "/warren/demo/"
CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 15.0
SETTINGS = {"cluster_replicate": '"durable"', "cluster_shards": "4", "loopback_users": "[]"}
OK = 200
WAIT_SECONDS = 180.0


@dataclass(frozen=True)
class Placed:
    """A queue, as etcd has it."""

    shard: int
    record: ShardRecord  # of the shard
    leader: str  # the name of the node that leads it; empty if there is none


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something holds, however often a store that comes and goes is kept waiting for that."""
    assert comes_true(what, WAIT_SECONDS), "it does not become true"


class HostCluster:
    """Three brokers and three members of etcd. Starts on entering; all is killed on leaving.

    The thread that uses it has to be in the network of the hosts: `entered`.
    """

    def __init__(self, path: Path, **settings: str) -> None:
        """Settings are those of warren.toml, as text: `cluster_lease="3.0"`."""
        self.path = path
        self.settings = SETTINGS | settings
        self.limits: dict[str, float] = {}  # of the source, which brokers are to have
        self.network = Network(*NAMES)
        self.stack = ExitStack()
        self.etcds: dict[str, EtcdProcess] = {}
        self.brokers: dict[str, BrokerProcess] = {}  # the newest run of each node
        self.runs: list[BrokerProcess] = []
        self.numbers = count()
        self.answered = ""  # the member of etcd that has answered last: it is asked first

    # --- start and end ---

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            stack.callback(self._kill_brokers)
            with self.entered():
                self._start_all(stack)
            self.stack = stack.pop_all()
        return self

    def _start_all(self, stack: ExitStack) -> None:
        self._make_etcds()
        for etcd in self.etcds.values():
            etcd.spawn()
            stack.callback(etcd.__exit__)
        for etcd in self.etcds.values():
            etcd.wait_until_it_answers()
        self.start(*NAMES)
        self.wait_until_whole()

    def entered(self) -> AbstractContextManager[None]:
        """Make this thread, and those that it starts meanwhile, clients on a host of their own."""
        return self.network.clients.space.entered()

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def _kill_brokers(self) -> None:
        for broker in self.runs:
            if broker.process.poll() is None:
                broker.kill()

    def check_logs(self) -> None:
        """No broker has failed in a way that nobody thought of."""
        for broker in self.runs:
            broker.check_log()

    def host(self, name: str) -> Host:
        return self.network.hosts[name]

    def others(self, *names: str) -> list[str]:
        return [name for name in NAMES if name not in names]

    def _make_etcds(self) -> None:
        for name in NAMES:
            host = self.host(name)
            self.etcds[name] = EtcdProcess(
                self.path / f"etcd-{name}",
                host=host.address,
                ports=(ETCD, ETCD_PEERS),
                within=host.space.command(),
            )
        members = ",".join(f"{etcd.name}={etcd.peers}" for etcd in self.etcds.values())
        for etcd in self.etcds.values():
            etcd.all_members = members

    # --- brokers ---

    def start(self, *names: str) -> None:
        """Start brokers at once, and return when they are ready."""
        for name in names:
            self.launch(name)
        for name in names:
            self.brokers[name].wait_until_ready()

    def launch(self, name: str) -> None:
        """Start a broker, and do not wait for it."""
        host = self.host(name)
        config = self.path / "warren.toml"
        config.write_text("".join(f"{key} = {value}\n" for key, value in self.settings.items()))
        broker = BrokerProcess(
            self.path / name,
            *("--config", str(config), "--cluster", "demo", "--node", name),
            *("--etcd", ",".join(etcd.endpoint for etcd in self.etcds.values())),
            *("--bind", host.address, "--port", str(AMQP), "--http-port", str(HTTP)),
            *("--peers-bind", f"{host.address}:{PEERS}"),
            within=host.space.command(),
            limits=self.limits,
        )
        broker.log_path = self.path / f"{name}.{next(self.numbers)}.log"
        broker.address = Address(host.address, AMQP)
        broker.launch()
        self.brokers[name] = broker
        self.runs.append(broker)

    def is_running(self, name: str) -> bool:
        broker = self.brokers.get(name)
        return broker is not None and broker.process.poll() is None

    def kill(self, *names: str) -> None:
        """SIGKILL to brokers."""
        for name in names:
            self.brokers[name].process.kill()
        for name in names:
            self.brokers[name].kill()

    def stop(self, name: str) -> None:
        """SIGTERM to a broker. Returns when it has ended."""
        self.brokers[name].__exit__()

    def pause(self, name: str) -> None:
        os.kill(self.brokers[name].process.pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        os.kill(self.brokers[name].process.pid, signal.SIGCONT)

    # --- hosts ---

    def die(self, name: str) -> None:
        """A host is gone: nobody hears of it any more."""
        self.host(name).link(up=False)
        self.etcds[name].kill()
        self.kill(name)

    def boot(self, name: str) -> None:
        """A host that was gone comes back, and what runs on it is started."""
        self.host(name).link(up=True)
        self.etcds[name].spawn()
        self.etcds[name].wait_until_it_answers()
        self.start(name)

    def heal(self) -> None:
        """Undo whatever was done to hosts and processes. What is gone is started."""
        for name in NAMES:
            self.host(name).heal()
            self.host(name).link(up=True)
            if self.etcds[name].process.poll() is None:
                self.etcds[name].go_on()
            else:
                self.etcds[name].spawn()
            if self.is_running(name):
                self.go_on(name)
        for etcd in self.etcds.values():
            etcd.wait_until_it_answers()
        self.start(*(name for name in NAMES if not self.is_running(name)))

    def wait_until_whole(self) -> None:
        """Every shard has a leader, and all of its copies are in sync."""
        eventually(self._is_whole)

    def _is_whole(self) -> bool:
        runs = self.node_facts()
        there = {(facts["store"], facts["run"]) for facts in runs.values()}
        records = self.shards()
        return bool(records) and all(
            record.leader in there and set(record.isr) == set(record.replicas) for record in records.values()
        )

    # --- what etcd has ---

    def keys(self, prefix: str) -> dict[str, bytes]:
        """All keys below this one, from whatever member answers."""
        found: dict[str, bytes] = {}

        def is_read() -> bool:
            for name in sorted(NAMES, key=lambda name: name != self.answered):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = self._ask_etcd(name, "kv/range", _range(PREFIX + prefix))
                    if answer is not None:
                        self.answered = name
                        found.update(_pairs(answer, PREFIX + prefix))
                        return True
            return False

        eventually(is_read)
        return found

    def _ask_etcd(self, name: str, path: str, wanted: dict[str, str]) -> dict[str, Any] | None:
        """None if the member cannot answer now."""
        address = self.host(name).address
        connection = http.client.HTTPConnection(address, ETCD, timeout=CONNECT_SECONDS_MAX)
        with contextlib.closing(connection):
            connection.request("POST", f"/v3/{path}", json.dumps(wanted))
            answer = connection.getresponse()
            found = json.loads(answer.read())
            return found if answer.status == OK else None

    def etcd_leader(self) -> str:
        """The host of the member of etcd that leads."""
        leaders: list[str] = []

        def is_known() -> bool:
            for name in NAMES:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    told = self._ask_etcd(name, "maintenance/status", {})
                    if told is not None and told.get("leader") == told["header"]["member_id"]:
                        leaders.append(name)
                        return True
            return False

        eventually(is_known)
        return leaders[0]

    def move_etcd_leader(self, name: str) -> None:
        """Have the member of etcd on this host lead the others."""

        def is_moved() -> bool:
            leader = self.etcd_leader()
            told = self._ask_etcd(name, "maintenance/status", {})
            if leader != name and told is not None:
                self._ask_etcd(
                    leader, "maintenance/transfer-leadership", {"targetID": told["header"]["member_id"]}
                )
            return self.etcd_leader() == name

        eventually(is_moved)

    def shards(self) -> dict[int, ShardRecord]:
        return {int(number): read_record(text) for number, text in self.keys("shards/").items()}

    def node_facts(self) -> dict[str, Any]:
        """What each node says of itself, by its name."""
        return {name: json.loads(text) for name, text in self.keys("nodes/").items()}

    def names(self) -> dict[str, str]:
        """The names of nodes, by their stores."""
        return {facts["store"]: name for name, facts in self.node_facts().items()}

    def placed(self, queue: str) -> Placed:
        """Where a queue is, and who leads it."""
        shard = json.loads(self.keys(f"d/queue/%2F/{queue}")[""])["shard"]
        record = self.shards()[shard]
        return Placed(shard, record, self._leader_in(record))

    def leader_of(self, shard: int) -> str:
        """The name of the node that leads a shard; empty if there is none."""
        return self._leader_in(self.shards()[shard])

    def _leader_in(self, record: ShardRecord) -> str:
        return "" if record.leader is None else self.names().get(record.leader.store, "")

    def in_sync(self, queue: str) -> set[str]:
        """The names of the nodes that have all of a queue that was confirmed."""
        names = self.names()
        return {names[store] for store in self.placed(queue).record.isr if store in names}

    # --- clients ---

    def parameters(self, name: str) -> pika.ConnectionParameters:
        return pika.ConnectionParameters(
            self.host(name).address,
            AMQP,
            socket_timeout=CONNECT_SECONDS_MAX,
            stack_timeout=ANSWER_SECONDS_MAX,
            blocked_connection_timeout=ANSWER_SECONDS_MAX,
        )

    @contextlib.contextmanager
    def channel(self, name: str) -> Iterator[BlockingChannel]:
        """A channel at a node, which may break at any time."""
        connection = pika.BlockingConnection(self.parameters(name))
        try:
            yield connection.channel()
        finally:
            close(connection)

    def api(self, name: str) -> HttpClient:
        return HttpClient(f"http://{self.host(name).address}:{HTTP}")

    def declare(self, queue: str, leader: str = "", **arguments: str | int) -> str:
        """Declare a durable queue, through the node that is to lead it if one is named. Say who leads it."""

        def is_declared() -> bool:
            with self.channel(leader or NAMES[0]) as channel:
                try:
                    channel.queue_declare(queue, durable=True, arguments=dict(arguments))
                except pika.exceptions.ChannelClosedByBroker as error:
                    if error.reply_code != RESOURCE_LOCKED:
                        raise
                    return "connect there" in error.reply_text  # it is made, and another node leads it
            return True

        eventually(is_declared)
        self.wait_for_leader(queue)
        return self.placed(queue).leader

    def wait_for_leader(self, queue: str, *among: str) -> str:
        """Wait until one of these nodes leads a queue, and is open for clients. Say which."""
        found: list[str] = []

        def is_found() -> bool:
            for name in among or NAMES:
                if self.is_running(name) and self.serves(name, queue):
                    found.append(name)
                    return True
            return False

        eventually(is_found)
        return found[0]

    def serves(self, name: str, queue: str) -> bool:
        """Whether a node leads a queue, and is open for clients."""
        try:
            with self.channel(name) as channel:
                channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != RESOURCE_LOCKED:
                raise
            return False
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True


def _range(prefix: str) -> dict[str, str]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"key": _encoded(prefix), "range_end": _encoded(end)}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _pairs(answer: dict[str, Any], prefix: str) -> dict[str, bytes]:
    """Keys without their prefix, and their values."""
    return {
        base64.b64decode(kv["key"]).decode().removeprefix(prefix): base64.b64decode(kv["value"])
        for kv in answer.get("kvs", [])
    }
