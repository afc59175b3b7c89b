"""A change that takes time: the client's channel waits for it, the others go on, and errors come late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import EXCHANGE_TYPES, FakeWorld, add_user
from warren.amqp import methods as m
from warren.broker import commands
from warren.broker.changes import Applied
from warren.broker.commands import Command
from warren.broker.node import Limits, Node


class SlowNode(Node):
    """Makes the changes that clients ask for when it is told to, as a cluster would."""

    def __init__(self, world: FakeWorld) -> None:
        super().__init__(world, Limits(), EXCHANGE_TYPES, "test")
        self.waiting: deque[tuple[Command, Callable[[Applied], None] | None]] = deque()
        self.is_slow = False

    def change(self, command: Command, then: Callable[[Applied], None] | None = None) -> None:
        if self.is_slow:
            self.waiting.append((command, then))
        else:
            super().change(command, then)

    def make_change(self) -> None:
        super().change(*self.waiting.popleft())
        self.end_turn()


@pytest.fixture
def node() -> SlowNode:
    node = SlowNode(FakeWorld())
    node.execute(commands.AddVhost(name="/"))
    add_user(node, "guest")
    return node


@pytest.fixture
def client(node: SlowNode) -> FakeClient:
    client = FakeClient(node).open()
    client.send(m.ChannelOpen(), 2)
    client.frames()
    node.is_slow = True
    return client


def test_answer_waits_for_the_change_and_other_channels_do_not(client: FakeClient, node: SlowNode) -> None:
    client.send(m.QueueDeclare(queue="q", arguments={}))
    client.send(m.BasicQos(prefetch_count=1))
    assert client.methods(1) == []
    client.send(m.BasicQos(prefetch_count=1), 2)
    assert client.methods(2) == [m.BasicQosOk()]
    node.make_change()
    assert client.methods(1) == [
        m.QueueDeclareOk(queue="q", message_count=0, consumer_count=0),
        m.BasicQosOk(),
    ]


def test_error_of_a_late_change_closes_the_channel_and_names_the_method(
    client: FakeClient, node: SlowNode
) -> None:
    client.send(m.QueueDeclare(queue="amq.mine", arguments={}))
    client.send(m.BasicQos(prefetch_count=1))
    node.make_change()
    (close,) = client.methods(1)
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (403, *m.QueueDeclare.id)


def test_several_changes_of_a_channel_are_made_one_after_the_other(
    client: FakeClient, node: SlowNode
) -> None:
    client.send(m.QueueDeclare(queue="q", arguments={}))
    client.send(m.QueueBind(queue="q", exchange="amq.topic", routing_key="k", arguments={}))
    client.send(m.QueueDelete(queue="q"))
    for answer in (m.QueueDeclareOk, m.QueueBindOk, m.QueueDeleteOk):
        assert len(node.waiting) == 1
        node.make_change()
        assert [type(method) for method in client.methods(1)] == [answer]


def test_client_that_is_gone_hears_nothing_of_its_change(client: FakeClient, node: SlowNode) -> None:
    client.send(m.QueueDeclare(queue="q", arguments={}))
    client.hang_up()
    node.make_change()
    assert "q" in node.vhosts["/"].queues
    world = node.world
    assert isinstance(world, FakeWorld)
    assert world.errors == []


def test_consumers_of_a_deleted_queue_are_cancelled_behind_delete_ok(
    client: FakeClient, node: SlowNode
) -> None:
    node.is_slow = False
    client.declare("q")
    client.consume("q")
    client.frames()
    node.is_slow = True
    client.send(m.QueueDelete(queue="q"))
    node.make_change()
    assert [type(method) for method in client.methods(1)] == [m.QueueDeleteOk, m.BasicCancel]
