"""What a pump does with deliveries and confirms, with links that only keep what is sent."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from warren.amqp.errors import SyntaxFault
from warren.amqp.writer import Output
from warren.broker.message import Message
from warren.relay import pump as pump_module
from warren.relay.link import Owner, RelayLink
from warren.relay.pump import NO_ACK, ON_CONFIRM, Pump, Rewrite

ACK, NACK = bytes.fromhex("003c0050"), bytes.fromhex("003c0078")  # basic.ack, basic.nack


class Sink:
    """A link that takes everything, and keeps what was sent."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.is_paused = False
        self.output = Output([], None)
        self.may_publish = True
        self.sent = b""

    def flush(self) -> None:
        self.sent += b"".join(self.output.take())

    def attach(self, owner: Owner) -> None: ...

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def end(self, reason: Exception) -> None:
        self.ended.set_result(reason)


def message(properties: bytes = b"\0\0") -> Message:
    return Message(b"\0", b"\1q", properties, b"body", False, 0)


def as_it_is(each: Message, _redelivered: bool) -> tuple[bytes, bytes]:
    return b"publish", each.properties


def pump_between(
    source: Sink, destination: Sink, ack_mode: str = ON_CONFIRM, rewrite: Rewrite = as_it_is
) -> Pump:
    pump = Pump(cast("RelayLink", source), cast("RelayLink", destination), rewrite, ack_mode=ack_mode)
    pump.start()
    return pump


async def test_the_pump_rests_after_a_refusal() -> None:
    source = Sink()
    pump = pump_between(source, Sink())
    pump.take([(1, False, message()), (2, False, message())])
    assert pump.published == 2
    pump.confirm([(1, False, False)])
    assert source.sent.count(NACK) == 1, "it goes back to its queue at once"
    pump.take([(3, True, message())])
    assert (pump.published, len(pump.waiting)) == (2, 1)
    assert pump.rest is not None
    pump.rest.cancel()
    pump.end_rest()
    assert (pump.published, pump.carried) == (3, 0)
    pump.confirm([(3, True, True)])
    assert pump.carried == 2


async def test_a_pump_that_has_ended_publishes_nothing_after_its_rest() -> None:
    destination = Sink()
    pump = pump_between(Sink(), destination)
    pump.take([(1, False, message())])
    pump.confirm([(1, False, False)])
    pump.take([(2, True, message())])
    destination.may_publish = False
    assert pump.rest is not None
    pump.rest.cancel()
    pump.end_rest()
    assert pump.published == 1


@pytest.mark.parametrize("properties", [b"\0\0", b"\0\0" + bytes(10_000)])
async def test_source_is_not_read_while_much_waits(properties: bytes) -> None:
    """Messages count also if they have no body, since the source may have any number of them for us."""
    source, destination = Sink(), Sink()
    pump = pump_between(source, destination)
    destination.may_publish = False
    many = pump_module.WAITING_BYTES_MAX // (len(properties) + pump_module.MESSAGE_BYTES) + 1
    pump.take([(tag, False, message(properties)) for tag in range(1, many + 1)])
    assert source.is_paused
    destination.may_publish = True
    pump.publish()
    assert not source.is_paused
    assert (pump.waiting_bytes, pump.published) == (0, many)


async def test_no_more_than_a_limit_waits_for_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "UNCONFIRMED_MAX", 3)
    pump = pump_between(Sink(), Sink())
    pump.take([(tag, False, message()) for tag in range(1, 6)])
    assert (pump.published, len(pump.waiting)) == (3, 2)
    pump.confirm([(2, True, True)])
    assert (pump.published, len(pump.waiting)) == (5, 0)


async def test_message_that_nobody_can_read_ends_the_source_with_a_reason() -> None:
    def refuse(each: Message, redelivered: bool) -> tuple[bytes, bytes]:
        if each.properties:
            raise SyntaxFault("the properties end too early")
        return as_it_is(each, redelivered)

    source, destination = Sink(), Sink()
    pump = pump_between(source, destination, rewrite=refuse)
    pump.take([(1, False, message(b"")), (2, False, message(b"x")), (3, False, message(b""))])
    assert (
        str(source.ended.result())
        == "a message has properties that nobody can read: the properties end too early"
    )
    assert pump.published == 1
    assert destination.sent, "what came before it goes out"


# --- draining ---


async def test_a_pump_that_is_drained_waits_for_confirms_and_acks_them() -> None:
    source, destination = Sink(), Sink()
    pump = pump_between(source, destination)
    pump.take([(tag, False, message()) for tag in (1, 2)])
    destination.may_publish = False
    pump.take([(3, False, message())])
    draining = asyncio.create_task(pump.drain())
    await asyncio.sleep(0)
    assert source.is_paused
    pump.take([(4, False, message())])
    destination.may_publish = True
    pump.publish()
    assert pump.published == 2, "what was not published yet is left to the source"
    pump.confirm([(1, False, True)])
    assert not draining.done()
    pump.confirm([(2, False, True)])
    await draining
    assert (source.sent.count(ACK), pump.carried) == (2, 2)
    assert source.is_paused, "until the link says goodbye"


async def test_draining_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "DRAIN_SECONDS_MAX", 0.01)
    pump = pump_between(Sink(), Sink())
    pump.take([(1, False, message())])
    await pump.drain()
    assert len(pump.unconfirmed) == 1


@pytest.mark.parametrize("ends", ["source", "destination"])
async def test_draining_ends_with_either_link(ends: str) -> None:
    source, destination = Sink(), Sink()
    pump = pump_between(source, destination)
    pump.take([(1, False, message())])
    draining = asyncio.create_task(pump.drain())
    await asyncio.sleep(0)
    (source if ends == "source" else destination).end(OSError("gone"))
    await draining
    assert len(pump.unconfirmed) == 1


async def test_without_confirms_nothing_is_waited_for() -> None:
    pump = pump_between(Sink(), Sink(), NO_ACK)
    pump.take([(1, False, message())])
    await pump.drain()
    assert pump.carried == 1
