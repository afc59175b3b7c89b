"""Authenticators are asked in order; what is refused is told to the log, and limited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.fakes import FakeWorld, make_node
from warren.broker import events
from warren.broker.access import User
from warren.broker.login import BEARER, Credentials, Identity, Outcome, Refusal
from warren.broker.node import Limits, Node

GIVEN = Credentials(
    protocol="amqp091",
    mechanism="PLAIN",
    user="me",
    secret=b"secret",
    address="192.0.2.1",
    is_loopback=False,
    source="client",
)


class Scene:
    def __init__(self, limits: Limits | None = None) -> None:
        self.world = FakeWorld()
        self.node: Node = make_node(self.world, limits)
        self.outcomes: list[Outcome] = []
        self.failed: list[events.AuthenticationFailed] = []
        self.node.events.subscribe(events.AuthenticationFailed, self.failed.append)

    def log_in(self, credentials: Credentials = GIVEN) -> None:
        self.node.logins.attempt(credentials, self.outcomes.append, lambda: True)
        self.world.run()


def refusing(reason: str) -> Callable[[Credentials, Callable[[Outcome], None]], None]:
    return lambda _credentials, done: done(Refusal(reason))


def test_authenticators_are_asked_in_order_until_one_knows_the_client() -> None:
    scene = Scene()
    user = User("named by the second", None)
    never = refusing("never asked")
    scene.node.logins.checks = (refusing("first"), lambda _given, done: done(Identity(user)), never)
    scene.log_in()
    assert scene.outcomes == [Identity(user)]
    assert scene.failed == []


def test_all_reasons_are_told_to_the_log() -> None:
    scene = Scene()
    scene.node.logins.checks = (refusing("no user"), refusing("no token"))
    scene.log_in()
    assert scene.failed == [events.AuthenticationFailed("client", "me", "no user; no token")]
    assert isinstance(scene.outcomes[0], Refusal)


def test_loopback_users_are_refused_from_elsewhere_whoever_knows_them() -> None:
    scene = Scene(Limits(loopback_users=frozenset({"local"})))
    scene.node.logins.checks = (lambda _given, done: done(Identity(User("local", None))),)
    scene.log_in()
    scene.log_in(replace(GIVEN, is_loopback=True))
    assert [type(outcome) for outcome in scene.outcomes] == [Refusal, Identity]


def test_without_loopback_users_guest_may_log_in_from_elsewhere() -> None:
    for users, expected in ((frozenset({"guest"}), Refusal), (frozenset[str](), Identity)):
        scene = Scene(Limits(loopback_users=users))
        scene.log_in(replace(GIVEN, user="guest", secret=b"guest"))
        assert [type(outcome) for outcome in scene.outcomes] == [expected]


@pytest.mark.parametrize(("user", "expected"), [("guest", Identity), ("nobody", Refusal)])
def test_certificate_stands_for_a_password(user: str, expected: type) -> None:
    scene = Scene()
    scene.log_in(replace(GIVEN, mechanism="EXTERNAL", user=user, secret=None, is_loopback=True))
    assert [type(outcome) for outcome in scene.outcomes] == [expected]


def test_bearer_token_is_never_taken_for_a_password() -> None:
    scene = Scene()
    scene.log_in(replace(GIVEN, mechanism=BEARER, user="guest", secret=b"guest", is_loopback=True))
    assert [type(outcome) for outcome in scene.outcomes] == [Refusal]


def test_too_many_failures_make_the_next_attempt_wait_even_with_the_right_password() -> None:
    """Else a client could try all passwords at once, and see which one need not wait."""
    scene = Scene(Limits(login_failures_free=2))
    right = replace(GIVEN, user="guest", secret=b"guest", is_loopback=True)
    scene.log_in(right)
    for _ in range(2):
        scene.log_in(replace(right, secret=b"wrong"))
    scene.outcomes.clear()
    scene.log_in(right)
    assert scene.outcomes == []
    scene.world.advance(1.0)
    scene.world.run()
    assert [type(outcome) for outcome in scene.outcomes] == [Identity]


def test_secrets_are_in_no_repr() -> None:
    assert "secret=" not in repr(GIVEN)
    assert "canary" not in repr(replace(GIVEN, secret=b"canary"))
