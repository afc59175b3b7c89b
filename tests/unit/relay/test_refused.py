"""A destination that refuses messages is not asked again at once."""

from __future__ import annotations

from typing import cast

from warren.amqp.writer import Output
from warren.broker.message import Message
from warren.relay.link import Owner, RelayLink
from warren.relay.pump import ON_CONFIRM, Pump

NACK = bytes.fromhex("003c0078")  # basic.nack


class Sink:
    """A link that takes everything, and keeps what was sent."""

    transport = None

    def __init__(self) -> None:
        self.output = Output([], None)
        self.may_publish = True
        self.sent = b""

    def flush(self) -> None:
        self.sent += b"".join(self.output.take())

    def attach(self, owner: Owner) -> None: ...


def message() -> Message:
    return Message(b"\0", b"\1q", b"\0\0", b"body", False, 0)


async def test_the_pump_rests_after_a_refusal() -> None:
    source, destination = Sink(), Sink()
    pump = Pump(
        cast("RelayLink", source),
        cast("RelayLink", destination),
        lambda each, _redelivered: (b"publish", each.properties),
        ack_mode=ON_CONFIRM,
    )
    pump.start()
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
    source, destination = Sink(), Sink()
    pump = Pump(
        cast("RelayLink", source),
        cast("RelayLink", destination),
        lambda each, _redelivered: (b"publish", each.properties),
        ack_mode=ON_CONFIRM,
    )
    pump.start()
    pump.take([(1, False, message())])
    pump.confirm([(1, False, False)])
    pump.take([(2, True, message())])
    destination.may_publish = False
    assert pump.rest is not None
    pump.rest.cancel()
    pump.end_rest()
    assert pump.published == 1
