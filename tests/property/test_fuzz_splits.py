"""However the network cuts the bytes of a conversation, the broker answers the same and stands the same."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.fakes import FakeBroker
from tests.support.frames import HEARTBEAT_FRAME, handshake, method_frame, publish_frames
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.session.connection import connections_of

EXAMPLES = settings(max_examples=200)
BIG = bytes(range(256)) * 40


def conversation() -> list[bytes]:
    """All that a client does, in parts: before each it waits, since what follows depends on what it got."""
    headers = BasicProperties(headers={"a": 1, "b": ["x", None]}, delivery_mode=2, correlation_id="c")
    publish = m.BasicPublish(routing_key="q")
    mandatory = m.BasicPublish(routing_key="nowhere", mandatory=True)
    publishing = [
        *handshake(heartbeat=60),
        method_frame(1, m.ChannelOpen()),
        method_frame(2, m.ChannelOpen()),
        method_frame(1, m.ConfirmSelect()),
        method_frame(1, m.QueueDeclare(queue="q", arguments={"x-max-length": 1000})),
        HEARTBEAT_FRAME,
        *publish_frames(1, publish, b"first"),
        *publish_frames(1, publish, BIG, headers, frame_max=1000),
        HEARTBEAT_FRAME,
        *publish_frames(1, publish, b"", headers),
        *publish_frames(1, mandatory, b"returned"),
        *interleaved(
            publish_frames(1, publish, BIG, frame_max=4000), publish_frames(2, publish, BIG, frame_max=3000)
        ),
        method_frame(2, m.BasicQos(prefetch_count=2)),
        method_frame(2, m.BasicConsume(queue="q", consumer_tag="c", arguments={})),
    ]
    settling = [
        method_frame(2, m.BasicAck(delivery_tag=1)),
        HEARTBEAT_FRAME,
        method_frame(2, m.BasicReject(delivery_tag=2, requeue=False)),
        method_frame(2, m.BasicCancel(consumer_tag="c")),
        method_frame(1, m.BasicGet(queue="q")),
        *publish_frames(1, publish, b"last"),
        method_frame(2, m.BasicGet(queue="missing")),
        *publish_frames(2, publish, b"dropped"),
        method_frame(2, m.ChannelCloseOk()),
        *publish_frames(1, m.BasicPublish(exchange="missing"), b"x"),
        HEARTBEAT_FRAME,
    ]
    return [b"".join(publishing), b"".join(settling)]


def interleaved(one: list[bytes], other: list[bytes]) -> list[bytes]:
    """Two channels' frames, turn by turn."""
    both = [frame for pair in zip(one, other, strict=False) for frame in pair]
    shorter = min(len(one), len(other))
    return [*both, *one[shorter:], *other[shorter:]]


CONVERSATION = conversation()
SIZE = sum(map(len, CONVERSATION))
WAITS = list(accumulate(map(len, CONVERSATION)))


def answers(cuts: list[int]) -> tuple[dict[int, list[bytes]], object]:
    """What was sent on each channel, and how the broker stands then."""
    broker = FakeBroker()
    client = broker.connect()
    said, edges = b"".join(CONVERSATION), sorted({0, *cuts, *WAITS})
    for start, stop in pairwise(edges):
        client.feed(said[start:stop])
    assert not broker.world.errors
    by_channel: dict[int, list[bytes]] = {}
    for frame in client.frames():
        by_channel.setdefault(frame.channel, []).append(frame.payload)
    return by_channel, standing(broker)


def standing(broker: FakeBroker) -> object:
    vhost = broker.vhost
    (connection,) = connections_of(broker.node)
    queues = {
        name: (queue.message_count, queue.message_bytes, queue.unacked, queue.next_offset, queue.delivered)
        for name, queue in vhost.queues.items()
    }
    channels = {
        number: (channel.discarding, channel.deliveries.delivery_tag, channel.deliveries.outstanding)  # type: ignore[attr-defined]
        for number, channel in connection.channels.items()
    }
    return connection.state, queues, channels


def without_confirms(payloads: list[bytes]) -> list[bytes]:
    return [payload for payload in payloads if not payload.startswith(m.METHOD_ID.pack(*m.BasicAck.id))]


def confirmed(payloads: list[bytes]) -> int:
    """Up to which publish. How many acks say so depends on what one read brings, and may."""
    last = 0
    for payload in payloads:
        if payload.startswith(m.METHOD_ID.pack(*m.BasicAck.id)):
            ack = m.decode_method(payload)
            assert isinstance(ack, m.BasicAck)
            assert ack.multiple or ack.delivery_tag == last + 1
            last = ack.delivery_tag
    return last


WHOLE, STANDING = answers([])


def check(cuts: list[int]) -> None:
    sent, state = answers(cuts)
    assert state == STANDING
    assert sent.keys() == WHOLE.keys()
    for number, payloads in WHOLE.items():
        assert without_confirms(sent[number]) == without_confirms(payloads)
        assert confirmed(sent[number]) == confirmed(payloads)


@EXAMPLES
@given(st.lists(st.integers(0, SIZE), max_size=60))
@example(list(range(SIZE)))
def test_any_split_of_a_conversation_gives_the_same_answers_and_state(cuts: list[int]) -> None:
    check(cuts)


def test_conversation_reached_what_it_is_meant_to_reach() -> None:
    """That the rules above compare something."""
    kinds = {m.METHODS[ids] for ids in m.METHODS if any_starts_with(m.METHOD_ID.pack(*ids))}
    assert kinds >= {
        m.BasicReturn,
        m.BasicDeliver,
        m.BasicGetOk,
        m.ChannelClose,
        m.BasicAck,
        m.QueueDeclareOk,
    }


def any_starts_with(method_id: bytes) -> bool:
    return any(payload.startswith(method_id) for payloads in WHOLE.values() for payload in payloads)
