"""A relay's reader of what a broker sends: any cut of the bytes gives the same, and nonsense is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.methods import METHOD_ID, BasicAck, BasicDeliver, BasicNack, BasicQosOk
from warren.amqp.writer import Output
from warren.client.errors import ClientError
from warren.relay.inflow import Inflow

NAMES = st.binary(max_size=20)
MESSAGES = st.lists(
    st.tuples(NAMES, NAMES, st.booleans(), st.binary(max_size=50), st.binary(max_size=9000)), max_size=8
)


PREFIX = METHOD_ID.pack(*BasicDeliver.id) + b"\x03tag"


def short(name: bytes) -> bytes:
    return bytes((len(name),)) + name


def sent(messages: list[tuple[bytes, bytes, bool, bytes, bytes]]) -> bytes:
    """The frames of these deliveries, with a confirm and another method after each."""
    output = Output([], None)
    for tag, (exchange, key, redelivered, properties, body) in enumerate(messages, 1):
        output.deliver(1, PREFIX, tag, redelivered, short(exchange), short(key), b"\0\0" + properties, body)
        output.method(1, BasicAck(delivery_tag=tag, multiple=True).encode())
        output.method(1, BasicNack(delivery_tag=tag, multiple=False, requeue=False).encode())
        output.method(1, BasicQosOk().encode())
        output.heartbeat()
    return b"".join(output.take())


@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 5000), max_size=30))
def test_any_cut_gives_the_same(
    messages: list[tuple[bytes, bytes, bool, bytes, bytes]], cuts: list[int]
) -> None:
    data, inflow = sent(messages), Inflow()
    for size in cuts:
        inflow.feed(data[:size])
        data = data[size:]
    inflow.feed(data)
    assert [
        (tag, message.exchange, message.routing_key, again, message.properties, message.body)
        for tag, again, message in inflow.deliveries
    ] == [
        (tag, short(exchange), short(key), again, b"\0\0" + properties, body)
        for tag, (exchange, key, again, properties, body) in enumerate(messages, 1)
    ]
    tags = range(1, len(messages) + 1)
    assert inflow.confirms == [each for tag in tags for each in ((tag, True, True), (tag, False, False))]
    assert inflow.methods == [(1, BasicQosOk().encode()) for _ in messages]


DELIVER = BasicDeliver(
    consumer_tag="c", delivery_tag=1, redelivered=False, exchange="e", routing_key="k"
).encode()


def frame(kind: int, payload: bytes, end: int = 0xCE) -> bytes:
    return bytes((kind, 0, 1)) + len(payload).to_bytes(4) + payload + bytes((end,))


def header(size: int) -> bytes:
    return frame(2, b"\0\x3c\0\0" + size.to_bytes(8) + b"\0\0")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(1, DELIVER, end=0),
        frame(1, DELIVER[:-1]),
        frame(1, DELIVER[:9]),
        frame(1, DELIVER + b"x"),
        frame(1, b"\0"),
        frame(1, BasicAck(delivery_tag=1, multiple=False).encode()[:-1]),
        header(5),
        frame(3, b"body"),
        frame(1, DELIVER) + frame(1, DELIVER),
        frame(1, DELIVER) + frame(2, b"\0\x3c\0\0"),
        frame(1, DELIVER) + header(2) + frame(3, b"too long"),
        frame(1, DELIVER) + header(2) + header(2),
        frame(1, DELIVER) + header(1 << 40),
        bytes((1, 0, 1)) + (1 << 30).to_bytes(4),
    ],
)
def test_nonsense_is_an_error(data: bytes) -> None:
    with pytest.raises(ClientError):
        Inflow().feed(data)
