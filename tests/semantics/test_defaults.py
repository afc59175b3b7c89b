"""The limits a client meets when nothing was configured."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Connect
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import BODY, HEADER, METHOD, encode_header
from warren.amqp import methods as m

FRAME_MAX = 131072
CHANNEL_MAX = 2047
MESSAGE_MAX = 128 << 20


def test_tune_offers_the_defaults(raw: AmqpClient) -> None:
    raw.start()
    raw.authenticate()
    offered = raw.tune()
    assert offered == m.ConnectionTune(channel_max=CHANNEL_MAX, frame_max=FRAME_MAX, heartbeat=60)


@pytest.mark.parametrize("frame_max", [4096, FRAME_MAX])
@pytest.mark.parametrize(
    ("chunks", "rest"), [(1, -1), (1, 0), (1, 1), (3, 0), (3, 5)], ids=lambda part: f"{part:+d}"
)
def test_body_is_cut_into_chunks_of_frame_max_minus_8(
    connect: Connect, frame_max: int, chunks: int, rest: int
) -> None:
    client = connect(frame_max=frame_max)
    channel = client.channel()
    queue = channel.declare().queue
    step = frame_max - 8
    body = bytes(step * chunks + rest)
    channel.publish("", queue, body)
    channel.call(m.BasicGet(queue=queue, no_ack=True), m.BasicGetOk)
    assert client.read_frame(channel.number).kind == HEADER
    sizes = [step] * (chunks - (rest < 0)) + [step + rest if rest < 0 else rest] * (rest != 0)
    for size in sizes:
        frame = client.read_frame(channel.number)
        assert (frame.kind, len(frame.payload)) == (BODY, size)
    channel.close()


def test_body_sent_in_chunks_of_any_size_arrives_whole(client: AmqpClient, channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    pieces = [b"a", b"b" * 1000, b"c" * (FRAME_MAX - 8), b"d" * 7]
    channel.send(m.BasicPublish(routing_key=queue))
    client.send_frame(HEADER, channel.number, encode_header(sum(map(len, pieces))))
    for piece in pieces:
        client.send_frame(BODY, channel.number, piece)
    assert channel.get(queue).body == b"".join(pieces)


def test_body_of_several_megabytes_arrives_whole(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    body = bytes(range(256)) * (12 << 10)
    channel.publish("", queue, body)
    assert channel.get(queue).body == body


def test_body_without_bytes_has_no_body_frame(client: AmqpClient, channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue, b"")
    assert channel.get(queue).body == b""
    channel.send(m.BasicGet(queue=queue))
    assert client.read_frame(channel.number).kind == METHOD, "nothing stands between header and next method"


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_message_over_128_mib_is_406_once_its_header_says_so(
    client: AmqpClient, channel: AmqpChannel
) -> None:
    """RabbitMQ takes the whole body first."""
    queue = channel.declare().queue
    channel.send(m.BasicPublish(routing_key=queue))
    client.send_frame(HEADER, channel.number, encode_header(MESSAGE_MAX + 1))
    close = channel.expect_close(406)
    assert close.reply_text == (
        f"PRECONDITION_FAILED - message size {MESSAGE_MAX + 1} "
        f"is larger than configured max size {MESSAGE_MAX}"
    )


def test_prefetch_0_is_no_limit(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.call(m.BasicQos(prefetch_count=0), m.BasicQosOk)
    channel.consume(queue)
    for _ in range(1000):
        channel.publish("", queue)
    for tag in range(1, 1001):
        assert channel.expect_delivery().method.delivery_tag == tag


def test_every_channel_up_to_channel_max_can_be_opened(client: AmqpClient) -> None:
    for number in (1, 2, CHANNEL_MAX - 1, CHANNEL_MAX):
        client.channel(number)


def test_channel_above_channel_max_is_refused(raw: AmqpClient) -> None:
    raw.start()
    raw.authenticate()
    raw.tune(channel_max=1)
    raw.open()
    raw.channel(1)
    raw.send_method(2, m.ChannelOpen())
    close = raw.expect(0, m.ConnectionClose)
    assert close.reply_code == 530
    assert close.reply_text.startswith("NOT_ALLOWED - ")
    assert close.reply_text.endswith(" the negotiated channel_max (1)")
