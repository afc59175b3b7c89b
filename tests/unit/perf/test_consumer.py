from __future__ import annotations

from tests.support.frames import method_frame
from tests.unit.perf.peer import Peer
from tests.unit.perf.wire import delivery
from warren.amqp.methods import BasicAck, BasicConsume, BasicConsumeOk, BasicQos, BasicQosOk
from warren.perf.consumer import LoadConsumer
from warren.perf.loop import Loop
from warren.perf.scanner import Histogram


def test_deliveries_are_acked_every_so_many(loop: Loop, peer: Peer) -> None:
    consumer = LoadConsumer(loop, peer.uri, "q", Histogram(), ack_every=2, prefetch=7)
    peer.log_in()
    assert peer.expect(BasicQos).prefetch_count == 7
    peer.send(method_frame(1, BasicQosOk()))
    asked = peer.expect(BasicConsume)
    assert (asked.queue, asked.no_ack) == ("q", False)
    peer.send(
        method_frame(1, BasicConsumeOk(consumer_tag="c"))
        + delivery(1, b"a")
        + delivery(2, b"b")
        + delivery(3, b"c")
    )
    assert peer.expect(BasicAck) == BasicAck(delivery_tag=2, multiple=True)
    assert consumer.link.scanner.deliveries == 3


def test_auto_ack_asks_for_no_prefetch_and_says_no_ack(loop: Loop, peer: Peer) -> None:
    LoadConsumer(loop, peer.uri, "q", Histogram(), ack_every=0, prefetch=0)
    peer.log_in()
    assert peer.expect(BasicConsume).no_ack
