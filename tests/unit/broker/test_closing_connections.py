"""When a user or a vhost is deleted, its connections are closed: over several turns if they are many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import EVERYTHING, FakeBroker, add_user
from tests.support.frames import published
from warren.amqp import methods as m
from warren.broker import commands, node
from warren.broker.commands import Command
from warren.broker.turns import WORK_A_TURN_MAX

AT_A_TIME, MANY = 4, 20


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """A broker in which only so many connections can be closed in a turn."""
    monkeypatch.setattr(node, "CLOSE_WORK", WORK_A_TURN_MAX // AT_A_TIME)
    broker = FakeBroker()
    broker.node.execute(commands.AddVhost(name="v"))
    add_user(broker.node, "ann")
    broker.node.execute(commands.SetPermissions(user="ann", vhost="v", permissions=EVERYTHING))
    yield broker
    assert broker.world.errors == []
    broker.stop()


DELETIONS = pytest.mark.parametrize(
    "deletion", [commands.DeleteUser(name="ann"), commands.DeleteVhost(name="v")]
)


def count_closed(clients: list[FakeClient]) -> int:
    return sum(b"CONNECTION_FORCED" in client.link.sent for client in clients)


@DELETIONS
def test_very_many_connections_are_closed_some_in_each_turn(broker: FakeBroker, deletion: Command) -> None:
    other = broker.connect().open()
    clients = [broker.connect().open("ann", "v") for _ in range(MANY)]
    broker.world.run()
    broker.node.execute(deletion)
    closed = [count_closed(clients)]
    while broker.world.soon:
        broker.world.turn()
        closed.append(count_closed(clients))
    assert closed[-1] == MANY
    assert all(after - before <= AT_A_TIME for before, after in zip([0, *closed], closed, strict=False))
    for client in clients:
        client.send(m.ConnectionCloseOk(), 0)
    assert list(broker.node.clients) == [other.connection.id]


@DELETIONS
def test_nothing_more_is_taken_from_a_client_that_waits_to_be_closed(
    broker: FakeBroker, deletion: Command
) -> None:
    clients = [broker.connect().open("ann", "v") for _ in range(MANY)]
    queue = clients[0].declare("q")
    broker.world.run()
    broker.node.execute(deletion)
    last = clients[-1]
    assert not count_closed([last])
    assert not last.link.is_reading
    last.connection.feed(published("", "q", b"too late"))
    broker.world.run()
    assert count_closed([last])
    assert (last.link.is_reading, queue.message_count) == (True, 0)


def test_queues_of_a_deleted_vhost_go_when_its_clients_are_gone(broker: FakeBroker) -> None:
    clients = [broker.connect().open("ann", "v") for _ in range(MANY)]
    queue = clients[0].declare("q")
    clients[-1].consume("q")
    broker.world.run()
    broker.node.execute(commands.DeleteVhost(name="v"))
    assert not queue.deleted
    broker.world.run()
    assert queue.deleted
    assert not any(isinstance(each, m.BasicCancel) for each in clients[-1].methods())
