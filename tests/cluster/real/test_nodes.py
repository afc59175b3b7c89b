"""Real brokers that share their definitions by a real etcd, with a real client."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.real.broker_nodes import WAIT_SECONDS, Nodes, close, closed_with, eventually
from tests.cluster.real.etcd_process import EtcdProcess
from tests.cluster.real.etcd_space import QUOTA_BYTES, fill, make_space
from tests.cluster.real.http_client import HttpClient
from tests.cluster.real.shard_node import CLUSTER
from tests.support.process import BrokerProcess
from warren.server.cluster.bootstrap import agree_on_format
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.cluster.local_etcd import free_port

pytestmark = pytest.mark.slow


def test_three_nodes_share_their_definitions(nodes: Nodes) -> None:
    for name in "abc":
        nodes.start(name)
    a, b, c = (nodes.channel(name) for name in "abc")
    a.exchange_declare("events", "topic", durable=True)
    a.queue_declare("orders", durable=True)
    b.queue_bind("orders", "events", "#")  # declared on another node just now
    c.exchange_declare("events", "topic", passive=True)
    a.confirm_delivery()
    a.basic_publish("events", "new", b"one")
    _, _, body = a.basic_get("orders", auto_ack=True)
    assert body == b"one", "the binding made on b routes on a"
    text = closed_with(405, lambda: b.basic_get("orders"))
    assert f"node 'a' at {nodes.running['a'].told['amqp']}" in text
    c.confirm_delivery()
    assert "node 'a'" in closed_with(405, lambda: c.basic_publish("events", "new", b"two"))


def test_races_and_errors_are_those_of_one_broker(nodes: Nodes) -> None:
    for name in "ab":
        nodes.start(name)
    a = nodes.channel("a")
    a.queue_declare("q", durable=True)
    closed_with(406, lambda: nodes.channel("b").queue_declare("q", durable=False))
    closed_with(404, lambda: nodes.channel("b").queue_bind("none", "amq.topic", "#"))
    a.queue_delete("q")
    nodes.channel("b").queue_declare("q", durable=True)
    closed_with(405, lambda: nodes.channel("a").basic_get("q"))


def test_users_vhosts_and_policies_over_http_are_there_everywhere(nodes: Nodes) -> None:
    for name in "ab":
        nodes.start(name)
    a, b = (HttpClient(nodes.running[name].http_url) for name in "ab")
    a.put("vhosts/shop", {})
    a.put("users/ann", {"password": "secret", "tags": "management"})
    a.put("permissions/shop/ann", {"configure": ".*", "write": ".*", "read": ".*"})
    a.put("policies/shop/short", {"pattern": "q", "definition": {"max-length": 5}})
    a.put("exchanges/shop/e", {"type": "fanout"})
    eventually(lambda: any(each["name"] == "e" for each in b.get("exchanges/shop")))
    assert [each["name"] for each in b.get("policies/shop")] == ["short"]
    assert {each["name"] for each in b.get("users")} == {"ann", "guest"}
    host, port = nodes.running["b"].address.host, nodes.running["b"].address.port
    with pika.BlockingConnection(pika.URLParameters(f"amqp://ann:secret@{host}:{port}/shop")) as connection:
        connection.channel().queue_declare("q1")
    b.delete("vhosts/shop")
    eventually(lambda: all(each["name"] != "shop" for each in a.get("vhosts")))
    assert a.get("permissions") == b.get("permissions")


def test_a_node_that_was_down_catches_up_and_keeps_its_messages(nodes: Nodes) -> None:
    a, b = nodes.start("a"), nodes.start("b")
    channel = nodes.channel("a")
    for queue in ("kept", "deleted"):
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"message", pika.BasicProperties(delivery_mode=2))
    a.kill()
    elsewhere = nodes.channel("b")
    elsewhere.queue_declare("new", durable=True)
    elsewhere.queue_bind("kept", "amq.topic", "late")
    HttpClient(b.http_url).put("users/ann", {"password": "secret", "tags": ""})
    assert "node 'a'" in closed_with(405, lambda: nodes.channel("b").basic_get("kept"))
    a.launch()
    a.wait_until_ready()
    again = nodes.channel("a")
    assert again.queue_declare("kept", durable=True).method.message_count == 1
    again.confirm_delivery()
    again.basic_publish("amq.topic", "late", b"by the new binding")
    assert again.queue_declare("kept", durable=True).method.message_count == 2
    closed_with(405, lambda: nodes.channel("a").basic_get("new"))
    assert "not understood" not in a.log(), "its own file is as good as that of a single broker"


def test_a_queue_deleted_and_made_anew_on_another_node_has_no_old_messages(nodes: Nodes) -> None:
    a, b = nodes.start("a"), nodes.start("b")
    channel = nodes.channel("a")
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"old", pika.BasicProperties(delivery_mode=2))
    channel.queue_delete("q")
    nodes.channel("b").queue_declare("q", durable=True)
    b.kill()
    a.kill()
    for process in (a, b):
        process.launch()
        process.wait_until_ready()
    assert nodes.channel("b").queue_declare("q", durable=True).method.message_count == 0
    closed_with(405, lambda: nodes.channel("a").basic_get("q"))


def test_without_etcd_traffic_goes_on_and_declares_say_why(nodes: Nodes) -> None:
    nodes.start("a")
    channel = nodes.channel("a")
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    nodes.etcd.pause()
    channel.basic_publish("", "q", b"on", pika.BasicProperties(delivery_mode=2))
    assert channel.basic_get("q", auto_ack=True)[2] == b"on"
    text = closed_with(405, lambda: nodes.channel("a").queue_declare("new", durable=True))
    assert "etcd" in text
    text = closed_with(405, lambda: nodes.channel("a").basic_get("perhaps"))
    assert "etcd" in text, "that there is no such queue is not known"
    nodes.etcd.go_on()
    nodes.channel("a").queue_declare("newer", durable=True)


def test_etcd_that_was_killed_and_started_again_goes_on(nodes: Nodes) -> None:
    for name in "ab":
        nodes.start(name)
    nodes.channel("a").queue_declare("before", durable=True)
    nodes.etcd.kill()
    nodes.channel("a").queue_declare("before", durable=True)  # is there, as far as anybody can know
    nodes.etcd.launch()
    nodes.channel("a").queue_declare("after", durable=True)
    closed_with(405, lambda: nodes.channel("b").basic_get("after"))


def test_a_node_that_is_alone_has_all_queues_that_need_no_others(nodes: Nodes) -> None:
    """Three nodes have to have been there before anything can be replicated."""
    nodes.start("a")
    channel = nodes.channel("a")
    channel.queue_declare("classic", durable=True)
    channel.basic_publish("", "classic", b"here")
    assert channel.basic_get("classic", auto_ack=True)[2] == b"here"
    sizes = {"quorum": "x-quorum-initial-group-size", "stream": "x-initial-cluster-size"}
    for kind, size in sizes.items():
        wanted = {"x-queue-type": kind}
        asked = nodes.channel("a")
        reason = closed_with(405, partial(asked.queue_declare, f"{kind}-3", durable=True, arguments=wanted))
        assert "too few of its nodes have ever been there" in reason
        channel.queue_declare(f"{kind}-1", durable=True, arguments={**wanted, size: 1})
    HttpClient(nodes.running["a"].http_url).put(
        "policies/%2F/one", {"pattern": "^alone", "definition": {"replicas": 1}}
    )
    channel.queue_declare("alone", durable=True, arguments={"x-queue-type": "quorum"})


def test_exclusive_queues_go_with_their_connection_and_with_their_node(nodes: Nodes) -> None:
    a, b = nodes.start("a"), nodes.start("b")
    first, second = nodes.channel("a"), nodes.channel("a")
    first.queue_declare("mine", exclusive=True)
    second.queue_declare("theirs", exclusive=True)
    closed_with(405, lambda: nodes.channel("b").queue_declare("mine", passive=True))
    first.connection.close()

    def there() -> set[str]:
        return {each["name"] for each in HttpClient(b.http_url).get("queues")}

    eventually(lambda: there() == {"theirs"})
    a.kill()
    a.launch()
    a.wait_until_ready()
    eventually(lambda: there() == set())


def test_a_data_directory_of_another_cluster_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    nodes.start("a").terminate()
    nodes.running.pop("a").process.wait(WAIT_SECONDS)
    with EtcdProcess(tmp_path / "other") as other:
        flags = ("--cluster", "demo", "--etcd", other.endpoint, "--node", "a")
        refused = BrokerProcess(tmp_path / "a", *flags)
        refused.launch()
        refused.process.communicate(timeout=WAIT_SECONDS)
        assert refused.process.returncode == 2
        assert "is of another cluster than 'demo'" in refused.log()


def test_a_directory_of_a_broker_that_was_alone_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "a"):
        pass
    flags = ("--cluster", "demo", "--etcd", nodes.etcd.endpoint, "--node", "a")
    refused = BrokerProcess(tmp_path / "a", *flags)
    refused.launch()
    refused.process.communicate(timeout=WAIT_SECONDS)
    assert refused.process.returncode == 2
    assert "of a broker that was alone" in refused.log()


def test_a_node_waits_until_etcd_has_space_and_a_declare_says_that_it_has_none(tmp_path: Path) -> None:
    async def ask(what: Callable[[Etcd], Coroutine[Any, Any, object]]) -> None:
        client = Etcd(EtcdSettings(endpoints=(etcd.endpoint,)), time.monotonic)
        try:
            await what(client)
        finally:
            await client.close()

    settings = replace(CLUSTER, name="demo", shards=64)
    flags = ("--cluster", "demo", "--node", "a")
    with EtcdProcess(tmp_path / "etcd", f"--quota-backend-bytes={QUOTA_BYTES}") as etcd:
        asyncio.run(ask(lambda client: agree_on_format(client, settings)))  # and nothing else is there
        asyncio.run(ask(fill))
        node = BrokerProcess(tmp_path / "a", *flags, "--etcd", etcd.endpoint)
        node.launch()
        with ExitStack() as stack:
            stack.callback(node.__exit__)
            eventually(lambda: "waiting for etcd" in node.log())
            assert "etcd's database is full" in node.log()
            asyncio.run(ask(make_space))
            node.wait_until_ready()
            connection = stack.enter_context(pika.BlockingConnection(pika.URLParameters(node.address.url())))
            asyncio.run(ask(fill))
            channel = connection.channel()
            text = closed_with(405, lambda: channel.queue_declare("q", durable=True))
            assert "etcd's database is full: raise its quota" in text
            asyncio.run(ask(make_space))
            connection.channel().queue_declare("q", durable=True)


def test_a_node_that_waits_for_etcd_can_be_stopped(tmp_path: Path, etcd_process: EtcdProcess) -> None:
    etcd_process.kill()
    endpoint = etcd_process.endpoint
    waiting = BrokerProcess(tmp_path / "a", "--cluster", "demo", "--etcd", endpoint, "--node", "a")
    waiting.launch()
    eventually(lambda: "waiting for etcd" in waiting.log())
    waiting.terminate()
    waiting.process.communicate(timeout=WAIT_SECONDS)
    assert waiting.process.returncode == 0


def test_a_local_etcd_lives_and_dies_with_its_broker(tmp_path: Path) -> None:
    flags = ("--cluster", uuid.uuid4().hex, "--etcd", "local", "--node", "a")
    with BrokerProcess(tmp_path / "a", *flags) as broker:
        children = Path(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children").read_text().split()
        [child] = [int(pid) for pid in children if _name_of(int(pid)) == "etcd"]
        with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
            connection.channel().queue_declare("q", durable=True)
        broker.kill()
        eventually(lambda: _name_of(child) != "etcd")
        broker.launch()
        broker.wait_until_ready()
        with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
            connection.channel().queue_declare("q", durable=True, passive=True)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_a_stopped_node_leaves_no_etcd_behind(tmp_path: Path) -> None:
    flags = ("--cluster", uuid.uuid4().hex, "--etcd", "local", "--node", "a")
    with BrokerProcess(tmp_path / "a", *flags) as broker:
        children = Path(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children").read_text().split()
        [child] = [int(pid) for pid in children if _name_of(int(pid)) == "etcd"]
        os.kill(broker.process.pid, signal.SIGTERM)
        broker.process.wait(WAIT_SECONDS)
        assert _name_of(child) != "etcd"


def test_definitions_imported_on_one_node_are_there_on_the_other(nodes: Nodes) -> None:
    for name in "ab":
        nodes.start(name)
    a, b = (HttpClient(nodes.running[name].http_url) for name in "ab")
    wanted = {
        "queues": [{"name": f"q{number}", "vhost": "/", "durable": True} for number in range(500)],
        "bindings": [
            {
                "source": "amq.topic",
                "vhost": "/",
                "destination": f"q{number}",
                "destination_type": "queue",
                "routing_key": "#",
                "arguments": {},
            }
            for number in range(500)
        ],
    }
    a.post("definitions", wanted)
    eventually(lambda: len(b.get("queues?columns=name,node")) == 500)
    assert {each["node"] for each in b.get("queues?columns=name,node")} == {"a"}
    eventually(lambda: len(b.get("exchanges/%2F/amq.topic/bindings/source")) == 500)


class Worker(threading.Thread):
    """Declares, binds and deletes at random on all nodes, whatever becomes of them."""

    def __init__(self, nodes: Nodes, seed: int, count: int) -> None:
        super().__init__()
        self.nodes = nodes
        self.random = random.Random(seed)
        self.count = count
        self.told: Counter[str] = Counter()  # how often what was answered
        self.channels: dict[str, BlockingChannel] = {}

    def run(self) -> None:
        for _ in range(self.count):
            name = self.random.choice(sorted(self.nodes.running))
            try:
                self._ask(self._channel(name))
                self.told["ok"] += 1
            except pika.exceptions.ChannelClosedByBroker as error:
                self.told[str(error.reply_code)] += 1
            except (pika.exceptions.AMQPError, OSError):  # the node was killed
                self.told["lost"] += 1
        for channel in self.channels.values():
            close(channel.connection)

    def _channel(self, name: str) -> BlockingChannel:
        channel = self.channels.get(name)
        if channel is None or not channel.connection.is_open:
            url = self.nodes.running[name].address.url()
            channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
        elif not channel.is_open:
            channel = channel.connection.channel()
        self.channels[name] = channel
        return channel

    def _ask(self, channel: BlockingChannel) -> None:
        queue, exchange = (f"{kind}{self.random.randrange(4)}" for kind in "qe")
        what = self.random.randrange(8)
        if what <= 1:
            channel.queue_declare(queue, durable=True)
        elif what == 2:
            channel.queue_delete(queue)
        elif what <= 4:
            channel.exchange_declare(exchange, "topic", durable=True)
        elif what == 5:
            channel.exchange_delete(exchange)
        else:
            channel.queue_bind(queue, exchange, str(self.random.randrange(3)))


@pytest.mark.timeout(300)
def test_nodes_agree_after_a_storm_in_which_etcd_and_a_node_are_killed(nodes: Nodes) -> None:
    for name in "abc":
        nodes.start(name)
    workers = [Worker(nodes, seed, 250) for seed in range(4)]
    for worker in workers:
        worker.start()
    eventually(lambda: sum(worker.told.total() for worker in workers) > 100)
    nodes.etcd.kill()
    nodes.etcd.launch()
    eventually(lambda: sum(worker.told.total() for worker in workers) > 400)
    nodes.running["c"].kill()
    nodes.running["c"].launch()
    nodes.running["c"].wait_until_ready()
    for worker in workers:
        worker.join()
    told = sum((worker.told for worker in workers), Counter())
    assert told["ok"] > 0
    assert told["405"] > 0
    assert not told.keys() - {"ok", "404", "405", "lost"}

    def topology(name: str) -> list[object]:
        api = HttpClient(nodes.running[name].http_url)
        return [
            sorted((each["name"], each["node"]) for each in api.get("queues")),
            sorted(each["name"] for each in api.get("exchanges")),
            sorted(
                (each["source"], each["destination"], each["routing_key"]) for each in api.get("bindings")
            ),
        ]

    eventually(lambda: topology("a") == topology("b") == topology("c"))
    nodes.start("d")
    assert topology("d") == topology("a")


def test_http_api_tells_of_queues_on_other_nodes_and_is_alive_everywhere(nodes: Nodes) -> None:
    for name in "ab":
        nodes.start(name)
    nodes.channel("a").queue_declare("q", durable=True)
    for name in "ab":
        api = HttpClient(nodes.running[name].http_url)
        told = api.get("queues/%2F/q")
        assert (told["node"], told["durable"]) == ("a", True)
        assert api.get("aliveness-test/%2F") == {"status": "ok"}
        assert b"rabbitmq_queues" in api.text("/metrics/per-object")
        assert api.get("overview")["cluster_name"] == "demo"
    refused = HttpClient(nodes.running["b"].http_url).refused("DELETE", "queues/%2F/q/contents")
    assert f"node 'a' at {nodes.running['a'].told['amqp']}" in refused


def test_a_node_whose_settings_do_not_go_with_those_that_run_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    """It may start once the others have ended: so settings can be changed."""
    nodes.start("a")
    (tmp_path / "other.toml").write_text("cluster_min_in_sync = 1")
    text = refused(nodes, "b", "--config", str(tmp_path / "other.toml"))
    assert text == (
        "warren serve: cluster_min_in_sync = 1: node 'a' runs with 2; to change it, stop all nodes first"
    )
    api = HttpClient(nodes.running["a"].http_url)
    assert [each["name"] for each in api.get("nodes")] == ["a"], "nobody counts on it"
    nodes.running["a"].kill()
    nodes.start("b", "--config", str(tmp_path / "other.toml"))


def test_a_node_that_cannot_be_called_runs_nevertheless(nodes: Nodes, tmp_path: Path) -> None:
    nodes.start("a", "--peers-advertise", "127.0.0.1:1")  # where nobody listens
    (tmp_path / "other.toml").write_text("cluster_min_in_sync = 1")
    text = refused(nodes, "b", "--config", str(tmp_path / "other.toml"))
    assert "node 'a' runs with 2" in text


def test_a_name_is_used_by_one_node_at_a_time(nodes: Nodes) -> None:
    """All others would take the data of the first one for lost, and replace it."""
    nodes.start("a")
    text = refused(nodes, "wiped", "--node", "a")
    assert "another process, with another data directory, runs as this node" in text
    nodes.running["a"].kill()
    nodes.start("wiped", "--node", "a")


def test_a_node_that_does_not_run_refuses_nobody_who_listens_where_it_did(
    nodes: Nodes, tmp_path: Path
) -> None:
    a, b = (f"127.0.0.1:{free_port()}" for _ in "ab")
    nodes.start("a", "--peers-bind", a)
    nodes.start("b", "--peers-bind", b)
    for process in nodes.running.values():
        process.kill()
    (tmp_path / "other.toml").write_text("cluster_min_in_sync = 1")
    for name, port in (("c", a), ("d", b)):
        nodes.start(name, "--config", str(tmp_path / "other.toml"), "--peers-bind", port)


def test_addresses_that_others_cannot_use_are_refused(nodes: Nodes) -> None:
    text = refused(nodes, "a", "--bind", "0.0.0.0")
    assert text.startswith("warren serve: cluster_advertise has to say by which host others find this node")
    assert "cluster_peers_bind" in refused(nodes, "a", "--peers-bind", "10.0.0.5")
    text = refused(nodes, "a", "--peers-bind", "no-such-host.invalid:0")
    assert text.startswith("warren serve: cannot listen on no-such-host.invalid:0 for other nodes")


def test_clients_and_nodes_are_told_what_is_advertised(nodes: Nodes) -> None:
    nodes.start("a", "--bind", "0.0.0.0", "--advertise", "127.0.0.2:5", "--peers-bind", "[::1]:0")
    b = nodes.start("b")
    nodes.channel("a").queue_declare("q", durable=True)
    assert "node 'a' at 127.0.0.2:5" in closed_with(405, lambda: nodes.channel("b").basic_get("q"))
    api = HttpClient(b.http_url)
    eventually(lambda: [each["running"] for each in api.get("nodes")] == [True, True])
    assert "clients on other machines cannot connect" not in nodes.running["a"].log()
    addresses = {each["name"]: each["http_address"] for each in api.get("nodes")}
    assert addresses["a"].startswith("127.0.0.2:")


def test_a_node_whose_clients_have_to_be_on_its_machine_says_so(nodes: Nodes) -> None:
    a = nodes.start("a", "--peers-advertise", "10.0.0.5")
    assert "clients on other machines cannot connect" in a.log()


def refused(nodes: Nodes, name: str, *arguments: str) -> str:
    """The last line that a broker says which does not start."""
    flags = ("--cluster", "demo", "--etcd", nodes.etcd.endpoint, "--node", name, *arguments)
    process = BrokerProcess(nodes.path / name, *flags)
    process.launch()
    process.process.communicate(timeout=WAIT_SECONDS)
    assert process.process.returncode
    assert "Traceback" not in process.log()
    return process.log().splitlines()[-1]
