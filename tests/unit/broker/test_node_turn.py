"""The end of a turn: one connection that fails keeps no other from being sent what is due."""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeBroker
from warren.amqp import methods as m


def test_connection_whose_flush_fails_does_not_keep_others_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker()
    broken, whole = broker.connect().open(), broker.connect().open()
    for client in (broken, whole):
        client.declare(f"of {id(client)}")
        client.send(m.QueueBind(queue=f"of {id(client)}", exchange="amq.fanout", arguments={}))
        client.consume(f"of {id(client)}", no_ack=True)

    def fail(_chunks: list[bytes]) -> None:
        raise OSError("a broken link")

    monkeypatch.setattr(broken.link, "send", fail)
    broker.connect().open().publish("amq.fanout", "", b"x")
    assert whole.bodies() == [b"x"]
    assert [str(error) for error in broker.world.errors] == ["a broken link"]
    broker.stop()
