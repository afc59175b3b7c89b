"""How relays end and wait: whoever is at the other end, the broker that ends does not wait for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.support.fakes import FakeWorld
from warren.amqp.methods import (
    BasicAck,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    Method,
    QueueBindOk,
)
from warren.broker.message import Message
from warren.client.errors import ClientError
from warren.client.frames import method_frame
from warren.client.uri import parse_uri
from warren.relay import link as link_module
from warren.relay.link import MISSED_MAX, RelayLink, open_link
from warren.relay.supervisor import STEADY_SECONDS, State, Supervised

CONNECTION_CLASS = 10  # whose methods go over channel 0


class DeafTransport:
    """Nobody answers what is written here."""

    def __init__(self) -> None:
        self.written: list[bytes | memoryview] = []
        self.is_aborted = False
        self.is_read = True

    def write(self, data: bytes | memoryview) -> None:
        self.written.append(data)

    def close(self) -> None: ...

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def abort(self) -> None:
        self.is_aborted = True


class Listener:
    """A link's owner, who may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.confirms: list[tuple[int, bool, bool]] = []

    def delivered(self, deliveries: list[tuple[int, bool, Message]]) -> None: ...
    def room_changed(self) -> None: ...

    def confirmed(self, confirms: list[tuple[int, bool, bool]]) -> None:
        if self.error is not None:
            raise self.error
        self.confirms += confirms


def deaf_link() -> tuple[RelayLink, DeafTransport]:
    link = RelayLink(parse_uri("amqp://there"), "test")
    link.transport = transport = DeafTransport()
    return link, transport


def frames(*methods: Method) -> bytes:
    return b"".join(method_frame(int(each.id[0] != CONNECTION_CLASS), each) for each in methods)


async def test_confirms_count_that_come_with_the_end() -> None:
    """A broker that stops confirms what it has, and closes: mostly in one packet."""
    link, _ = deaf_link()
    listener = Listener()
    link.attach(listener)
    closing = ConnectionClose(reply_code=320, reply_text="the broker stops")
    link.data_received(frames(BasicAck(delivery_tag=5, multiple=True), closing))
    assert listener.confirms == [(5, True, True)]
    assert "320 the broker stops" in str(link.ended.result())


async def test_a_mistake_of_ours_ends_the_link_and_is_told() -> None:
    link, _ = deaf_link()
    error = KeyError("ours")
    link.attach(Listener(error))
    link.data_received(frames(BasicAck(delivery_tag=1)))
    assert link.ended.result() is error


async def test_a_link_that_is_not_read_does_not_take_the_broker_for_dead() -> None:
    """Heartbeats that wait in the socket are not silence."""
    link, transport = deaf_link()
    link.heartbeat_seconds = 1
    link.pause()
    assert not transport.is_read
    link.heard_at -= MISSED_MAX + 1
    link.show_life()
    assert not link.ended.done()
    link.resume()
    assert transport.is_read
    link.show_life()
    assert not link.ended.done(), "from now on silence counts"
    link.heard_at -= MISSED_MAX + 1
    link.show_life()
    assert str(link.ended.result()) == "the broker at there:5672 is silent"


async def test_without_heartbeats_nobody_is_dead() -> None:
    link, transport = deaf_link()
    link.heard_at -= 1000
    link.show_life()
    assert not link.ended.done()
    assert not transport.written


async def test_goodbye_reads_again_and_passes_over_late_answers() -> None:
    link, transport = deaf_link()
    link.pause()
    closing = asyncio.create_task(link.close())
    await asyncio.sleep(0)
    assert transport.is_read
    link.data_received(frames(QueueBindOk(), ConnectionUnblocked(), ConnectionCloseOk()))
    await closing
    assert str(link.ended.result()) == "closed"


async def test_a_broker_that_does_not_say_goodbye_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "GOODBYE_SECONDS_MAX", 0.01)
    link, transport = deaf_link()
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

    def stop_taking(self) -> None: ...


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
    assert supervised.task is not None
    await supervised.task
    assert waits == ([0.5, 1, 2, 4] if is_longer else [0.5, 0.5, 0.5, 0.5])
    assert supervised.status.state is State.TERMINATED
