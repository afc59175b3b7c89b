"""Counting attempts to log in."""

from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient, make_peer
from tests.support.fakes import FakeWorld, make_node
from warren.broker import login_attempts
from warren.broker.login_attempts import Attempts, LoginAttempts, Source


def test_attempts_are_counted_by_protocol_and_by_source() -> None:
    attempts = LoginAttempts()
    attempts.note("http", "10.0.0.1", "a", succeeded=True)
    attempts.note("http", "10.0.0.1", "a", succeeded=False)
    attempts.note("http", "10.0.0.2", "b", succeeded=False)
    assert attempts.by_protocol == {"http": Attempts(1, 2)}
    assert attempts.by_source == {
        Source("http", "10.0.0.1", "a"): Attempts(1, 1),
        Source("http", "10.0.0.2", "b"): Attempts(0, 1),
    }
    attempts.reset()
    assert (attempts.by_protocol, attempts.by_source) == ({}, {})


def test_sources_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_attempts, "SOURCES_MAX", 2)
    attempts = LoginAttempts()
    for user in ("a", "b", "a", "c"):
        attempts.note("http", "", user, succeeded=True)
    assert [source.user for source in attempts.by_source] == ["a", "c"]
    assert attempts.by_protocol["http"].succeeded == 4


def test_login_of_a_client_is_counted() -> None:
    node = make_node(FakeWorld())
    FakeClient(node, peer=make_peer("127.0.0.2")).open()
    assert node.attempts.by_source == {Source("amqp091", "127.0.0.2", "guest"): Attempts(1, 0)}
