"""Clients of nodes in a cluster, without sockets: what they are told, and when."""

from __future__ import annotations

import pytest

from tests.cluster.definitions.model_etcd import Member, ModelEtcd, settle
from tests.support.fake_client import FakeClient
from tests.support.fakes import quick_hash
from warren.amqp import methods as m
from warren.amqp.reader import ReadBuffer
from warren.broker.access import Permissions
from warren.broker.commands import AddVhost, PutUser, SetPermissions

ALL = Permissions(".*", ".*", ".*")


class Cluster:
    """Two nodes, a and b, with a client each."""

    def __init__(self) -> None:
        self.etcd = ModelEtcd()
        self.a, self.b = Member(self.etcd, "a"), Member(self.etcd, "b")
        self.settle()
        for command in (
            AddVhost(name="/"),
            PutUser(name="guest", password=quick_hash("guest")),
            SetPermissions(user="guest", vhost="/", permissions=ALL),
        ):
            self.a.ask(command)
            self.settle()
        for member in (self.a, self.b):
            member.metadata.addresses = {"a": "10.0.0.1:5672", "b": "10.0.0.2:5672"}
        self.on_a, self.on_b = self.connect(self.a), self.connect(self.b)

    def connect(self, member: Member) -> FakeClient:
        client = FakeClient(member.node, name=member.name, buffer=ReadBuffer())
        client.open()
        return client

    def settle(self) -> None:
        settle(self.a, self.b)
        for member in (self.a, self.b):
            member.node.end_turn()

    def declare(self, name: str, **flags: bool) -> None:
        """On a; b has heard of it when this returns."""
        self.on_a.send(m.QueueDeclare(queue=name, arguments={}, **flags))
        self.settle()
        [answer] = self.on_a.methods(1)
        assert isinstance(answer, m.QueueDeclareOk)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_declare_ok_waits_for_etcd_and_later_frames_wait_behind_it(cluster: Cluster) -> None:
    cluster.on_a.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    cluster.on_a.send(m.BasicQos(prefetch_count=1))
    assert cluster.on_a.methods(1) == []
    cluster.settle()
    assert [type(each) for each in cluster.on_a.methods(1)] == [m.QueueDeclareOk, m.BasicQosOk]


def test_what_another_node_has_just_declared_is_found(cluster: Cluster) -> None:
    cluster.on_a.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    cluster.a.world.run()
    cluster.a.run_request()  # etcd has it, and b has not heard of it
    cluster.on_b.send(m.QueueBind(queue="q", exchange="amq.topic", routing_key="#", arguments={}))
    assert cluster.on_b.methods(1) == []
    cluster.settle()
    assert [type(each) for each in cluster.on_b.methods(1)] == [m.QueueBindOk]


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare(queue="q", passive=True, arguments={}),
        m.QueueBind(queue="q", exchange="amq.topic", routing_key="#", arguments={}),
        m.QueuePurge(queue="q"),
        m.BasicGet(queue="q"),
        m.BasicConsume(queue="q", arguments={}),
        m.ExchangeDeclare(exchange="q", passive=True, arguments={}),
    ],
    ids=lambda method: method.name,
)
def test_a_404_comes_after_catching_up_and_names_the_method(cluster: Cluster, method: m.Method) -> None:
    cluster.on_b.send(method)
    assert cluster.on_b.methods(1) == []
    cluster.settle()
    [close] = cluster.on_b.methods(1)
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, (close.class_id, close.method_id)) == (404, type(method).id)


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare(queue="q", passive=True, arguments={}),
        m.QueueDeclare(queue="q", durable=True, arguments={}),
        m.QueuePurge(queue="q"),
        m.QueueDelete(queue="q"),
        m.BasicGet(queue="q"),
        m.BasicConsume(queue="q", arguments={}),
    ],
    ids=lambda method: method.name,
)
def test_a_queue_on_another_node_is_405_with_the_address(cluster: Cluster, method: m.Method) -> None:
    cluster.declare("q", durable=True)
    cluster.on_b.send(method)
    cluster.settle()
    [close] = cluster.on_b.methods(1)
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 405
    assert "node 'a' at 10.0.0.1:5672" in close.reply_text


def test_a_message_that_would_go_to_another_node_is_405_and_goes_nowhere(cluster: Cluster) -> None:
    cluster.declare("q", durable=True)
    cluster.on_b.publish("", "q", b"body")
    cluster.settle()
    [close] = cluster.on_b.methods(1)
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 405
    assert cluster.a.node.vhosts["/"].queues["q"].message_count == 0


def test_a_client_that_has_gone_hears_nothing(cluster: Cluster) -> None:
    cluster.on_b.send(m.BasicGet(queue="none"))
    cluster.on_a.send(m.QueueDeclare(queue="mine", exclusive=True, arguments={}))
    for client in (cluster.on_a, cluster.on_b):
        client.hang_up()
    cluster.settle()
    assert not cluster.b.node.vhosts["/"].queues, "an exclusive queue goes with its connection"
    assert cluster.a.world.errors == cluster.b.world.errors == []


def test_an_exclusive_queue_goes_from_all_nodes_with_its_connection(cluster: Cluster) -> None:
    cluster.declare("mine", exclusive=True)
    assert "mine" in cluster.b.node.vhosts["/"].queues
    cluster.on_a.hang_up()
    cluster.settle()
    assert "mine" not in cluster.b.node.vhosts["/"].queues


def test_an_auto_delete_queue_goes_from_all_nodes_with_its_last_consumer(cluster: Cluster) -> None:
    cluster.declare("auto", auto_delete=True)
    cluster.on_a.send(m.BasicConsume(queue="auto", consumer_tag="c", arguments={}))
    cluster.on_a.send(m.BasicCancel(consumer_tag="c"))
    cluster.settle()
    for member in (cluster.a, cluster.b):
        assert "auto" not in member.node.vhosts["/"].queues


def test_a_channel_without_etcd_is_told_why(cluster: Cluster) -> None:
    cluster.on_a.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    cluster.a.world.run()
    cluster.a.run_request("refused")
    cluster.a.pass_time(11.0)
    cluster.a.node.end_turn()
    [close] = cluster.on_a.methods(1)
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, (close.class_id, close.method_id)) == (405, m.QueueDeclare.id)
    assert "etcd" in close.reply_text
