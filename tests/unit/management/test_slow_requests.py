"""A request that holds the event loop up is named in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.http_api import Api
from tests.support.machine import Notes
from warren.broker.passwords import rabbit_hash
from warren.management import queues, users
from warren.server.watchdog import SLOW_SECONDS


class Scene:
    """The broker's watchdog, and its clock: only what is made slow takes time."""

    def __init__(self, api: Api) -> None:
        self.time = 0.0
        self.notes = Notes()
        self.watchdog = api.broker.world.watchdog
        self.watchdog.now = lambda: self.time
        self.watchdog.log = self.notes
        self.watchdog.known_until = self.watchdog.told_at = -10.0

    def slow(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def take_long(*arguments: Any) -> Any:
            self.time += 2 * SLOW_SECONDS
            return work(*arguments)

        return take_long


@pytest.fixture
def scene(api: Api) -> Scene:
    return Scene(api)


async def test_slow_request_is_counted_and_told_with_its_path(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.declare("q")
    monkeypatch.setattr(queues, "describe", scene.slow(queues.describe))
    assert (await api.get("/api/queues/%2F/q")).status == 200
    assert scene.watchdog.slow_turns == 1
    [(event, fields)] = scene.notes.lines
    assert (event, fields["what"]) == ("slow turn", "HTTP GET /api/queues/%2F/q")


async def test_a_password_in_a_path_is_not_told(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "rabbit_hash", scene.slow(rabbit_hash))
    await api.get("/api/auth/hash_password/secret")
    [(_, fields)] = scene.notes.lines
    assert fields["what"] == "HTTP GET /api/auth/hash_password/…"
