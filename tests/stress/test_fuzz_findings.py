"""What nonsense has found once, each by itself."""

from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from warren.amqp import methods as m

CHAIN = 3_000


@pytest.fixture
def client() -> FakeClient:
    return FakeBroker().connect().open()


def say(client: FakeClient, *methods: m.Method) -> list[m.Method]:
    """What the broker answers on channel 1."""
    for method in methods:
        client.send(method)
    return client.methods()


@pytest.mark.parametrize("requeue", [False, True])
def test_commit_of_an_ack_that_recover_has_undone_fails_nobody(client: FakeClient, *, requeue: bool) -> None:
    client.declare("q")
    client.publish("", "q", b"x")
    say(client, m.TxSelect(), m.BasicConsume(queue="q", arguments={}))
    say(client, m.BasicAck(delivery_tag=1), m.BasicRecover(requeue=requeue))
    assert say(client, m.TxCommit()) == [m.TxCommitOk()]
    assert not client.world.errors


def test_long_chain_of_auto_delete_exchanges_goes_with_its_last_binding(client: FakeClient) -> None:
    """Each has only the next one's binding, so that one after another is left without."""
    predeclared = len(client.vhost.exchanges)
    client.declare("end")
    for number in range(CHAIN):
        client.declare_exchange(f"e{number}", "fanout", auto_delete=True)
    client.bind("end", "e0")
    for number in range(1, CHAIN):
        say(client, m.ExchangeBind(source=f"e{number}", destination=f"e{number - 1}", arguments={}))
    assert say(client, m.QueueDelete(queue="end")) == [m.QueueDeleteOk(message_count=0)]
    client.world.run()  # so many are too much for one turn
    assert len(client.vhost.exchanges) == predeclared
