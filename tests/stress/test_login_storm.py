"""After a restart all clients come back at once, each with a password that has to be verified slowly."""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeBroker
from warren.broker.passwords import PasswordHash
from warren.session.state import State

CLIENTS = 200


def test_password_that_many_bring_at_once_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the last of thousands would wait for all the others, and run into the handshake's limit."""
    hashed: list[bytes] = []
    verify = PasswordHash.verify

    def count(stored: PasswordHash, password: bytes) -> bool:
        hashed.append(password)
        return verify(stored, password)

    monkeypatch.setattr(PasswordHash, "verify", count)
    broker = FakeBroker()
    clients = [broker.connect() for _ in range(CLIENTS)]
    for client in clients:
        client.greet()
        client.authenticate()
    broker.world.run()
    assert {client.connection.state for client in clients} == {State.AWAITING_TUNE_OK}
    assert hashed == [b"guest"]
