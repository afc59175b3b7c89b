"""How relays end and wait: whoever is at the other end, the broker that ends does not wait for long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fakes import FakeWorld
from warren.client.errors import ClientError
from warren.client.uri import parse_uri
from warren.relay import link as link_module
from warren.relay.link import RelayLink, open_link
from warren.relay.supervisor import STEADY_SECONDS, State, Supervised


class DeafTransport:
    """Nobody answers what is written here."""

    def __init__(self) -> None:
        self.written: list[bytes | memoryview] = []
        self.is_aborted = False

    def write(self, data: bytes | memoryview) -> None:
        self.written.append(data)

    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_broker_that_does_not_say_goodbye_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "GOODBYE_SECONDS_MAX", 0.01)
    link = RelayLink(parse_uri("amqp://there"), "test")
    link.transport = transport = DeafTransport()
    await link.close()
    assert transport.written
    assert transport.is_aborted
    assert str(link.ended.result()) == "the broker at there:5672 does not say goodbye"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("amqps://there?cacertfile=absent.pem", "cannot read certificates in absent.pem: No such file"),
        (f"amqp://{'x' * 64}.example", f"cannot connect to {'x' * 64}.example:5672: "),
    ],
)
async def test_what_is_wrong_before_the_socket_is_the_relays_error(uri: str, reason: str) -> None:
    with pytest.raises(ClientError) as raised:
        await open_link(parse_uri(uri), "test")
    assert str(raised.value).startswith(reason)


class BreakingRelay:
    """Runs for so long, and breaks."""

    reconnect_seconds = 100.0

    def __init__(self, world: FakeWorld, seconds: float) -> None:
        self.world = world
        self.seconds = seconds

    async def run(self, running: Callable[[], None]) -> bool:
        running()
        self.world.advance(self.seconds)
        raise ClientError("broken")


@pytest.mark.parametrize(
    ("seconds", "is_longer"), [(0.0, True), (STEADY_SECONDS - 1, True), (STEADY_SECONDS, False)]
)
async def test_a_relay_that_breaks_soon_waits_longer_each_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_longer: bool
) -> None:
    waits: list[float] = []

    async def sleep(wait: float) -> None:
        waits.append(wait)
        supervised.is_finished = len(waits) == 4

    monkeypatch.setattr("warren.relay.supervisor.asyncio.sleep", sleep)
    monkeypatch.setattr("warren.relay.supervisor.SPREAD", 0)
    world = FakeWorld()
    supervised = Supervised(BreakingRelay(world, seconds), world.time_ms, world.errors.append)
    await supervised.task
    assert waits == ([0.5, 1, 2, 4] if is_longer else [0.5, 0.5, 0.5, 0.5])
    assert supervised.status.state is State.TERMINATED
