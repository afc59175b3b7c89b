"""Authenticators of other packages: loaded by name, asked in order, and harmless if they fail."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from warren import Broker, events
from warren.broker.access import Permissions, User
from warren.broker.login import Credentials, Identity, Outcome, Refusal
from warren.server import authenticators as module
from warren.server.config_error import ConfigError

GIVEN = Credentials(
    protocol="amqp091",
    mechanism="PLAIN",
    user="me",
    secret=b"secret",
    address="127.0.0.1",
    is_loopback=True,
    source="test",
)


class Answers:
    """Lets in whoever is called `me`; fails and hangs as the name says."""

    def __init__(self, broker: Broker) -> None:
        self.state = "made"

    async def start(self) -> None:
        self.state = "started"

    async def stop(self) -> None:
        self.state = "stopped"

    async def authenticate(self, credentials: Credentials) -> Outcome:
        if credentials.user == "fails":
            raise ValueError("mine")
        if credentials.user == "hangs":
            await asyncio.sleep(600)
        if credentials.user != "me":
            return Refusal("not me")
        return Identity(User("me", None, permissions={"/": Permissions(".*", ".*", ".*")}))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package brings the authenticators `answers` and `broken`."""
    points = {
        "answers": EntryPoint("answers", f"{__name__}:Answers", module.GROUP),
        "broken": EntryPoint("broken", "no_such_module:Thing", module.GROUP),
    }

    def find(*, group: str, name: str) -> list[EntryPoint]:
        return [point for point in points.values() if (point.group, point.name) == (group, name)]

    monkeypatch.setattr(module, "entry_points", find)


async def log_in(broker: Broker, user: str) -> Outcome:
    answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    given = Credentials(**(vars(GIVEN) | {"user": user}))
    broker.node.logins.attempt(given, answered.set_result, lambda: True)
    return await answered


def make(tmp_path: Any, *backends: str) -> Broker:
    return Broker(port=0, data_dir=tmp_path / "data", auth_backends=backends)


async def test_authenticator_is_started_asked_and_stopped(tmp_path: Any) -> None:
    async with make(tmp_path, "answers") as broker:
        [running] = broker.authenticators.running
        assert isinstance(running, Answers)
        assert running.state == "started"
        outcome = await log_in(broker, "me")
        assert isinstance(outcome, Identity)
        assert outcome.user.name == "me"
        assert isinstance(await log_in(broker, "guest"), Refusal)
    assert running.state == "stopped"


async def test_order_is_that_of_the_setting(tmp_path: Any) -> None:
    for backends, expected in (
        (("internal", "answers"), "unknown user, or one without a password; not me"),
        (("answers", "internal"), "not me; unknown user, or one without a password"),
    ):
        async with make(tmp_path, *backends) as broker:
            assert await log_in(broker, "nobody") == Refusal(expected)


async def test_authenticator_that_fails_refuses_and_is_reported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Exception] = []
    async with make(tmp_path, "answers") as broker:
        monkeypatch.setattr(broker.authenticators, "report", reported.append)
        assert await log_in(broker, "fails") == Refusal("Answers failed")
    assert [str(error) for error in reported] == ["mine"]


async def test_authenticator_that_does_not_answer_refuses(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.05)
    async with make(tmp_path, "answers") as broker:
        assert await log_in(broker, "hangs") == Refusal("Answers does not answer")


async def test_login_under_way_does_not_keep_the_broker_from_stopping(tmp_path: Any) -> None:
    async with make(tmp_path, "answers") as broker:
        seen: list[events.AuthenticationFailed] = []
        broker.subscribe(events.AuthenticationFailed, seen.append)
        given = Credentials(**(vars(GIVEN) | {"user": "hangs"}))
        broker.node.logins.attempt(given, lambda _outcome: None, lambda: True)
        await asyncio.sleep(0)
    assert not broker.authenticators.tasks
    assert seen == []


@pytest.mark.parametrize(
    ("name", "expected"), [("none", "no authenticator 'none'"), ("broken", "cannot load")]
)
async def test_authenticator_that_is_not_there_keeps_the_broker_from_starting(
    tmp_path: Any, name: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        await make(tmp_path, "internal", name).start()


async def test_without_the_library_the_extra_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUILT_IN", EntryPoint("oauth2", "no_such_module:Thing", module.GROUP))
    with pytest.raises(ConfigError, match=r"warrenmq\[oauth\]"):
        module.load_authenticator("oauth2")
