"""After a restart all clients come back at once, each with a password that has to be verified slowly."""

from __future__ import annotations

import pytest

from tests.support.fake_world import FakeBroker
from tests.support.frames import handshake
from warren.broker.passwords import PasswordHash
from warren.broker.session.state import State

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
    peers = [broker.connect() for _ in range(CLIENTS)]
    for peer in peers:
        peer.waiting.extend(handshake())
        peer.connection.feed(peer.waiting.popleft())
        peer.connection.feed(peer.waiting.popleft())
    for peer in peers:
        peer.run()
    assert {peer.connection.state for peer in peers} == {State.OPEN}
    assert hashed == [b"guest"]
