"""Whenever channels wait and go on, and however the bytes are cut, each channel sees the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import (
    BODY,
    HEADER,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    encode_frame,
    encode_header,
    method_frame,
    published,
)
from tests.unit.amqp.test_reader import NotedReader
from tests.unit.amqp.test_reader_waiting import GO_ON_AT_ONCE, LET_1_GO_ON, SUSPEND, WAIT, WaitingReader
from warren.amqp import methods as m
from warren.amqp.reader import FrameReader, ReadBuffer
from warren.session.channel import Channel

pytestmark = pytest.mark.slow

EXAMPLES = settings(max_examples=300)
NUMBERS = (1, 2)

numbers = st.sampled_from(NUMBERS)
bodies = st.binary(max_size=30)


# --- the reader ---


@st.composite
def publishes(draw: st.DrawFn) -> list[bytes]:
    channel, body = draw(numbers), draw(bodies)
    cut = draw(st.integers(0, len(body)))
    return [
        method_frame(channel, m.BasicPublish(exchange=draw(st.sampled_from(["", "e"])), routing_key="k")),
        encode_frame(HEADER, channel, encode_header(len(body))),
        encode_frame(BODY, channel, body[:cut]),
        encode_frame(BODY, channel, body[cut:]),
    ]


acks = st.builds(
    lambda channel, tag: [method_frame(channel, m.BasicAck(delivery_tag=tag))], numbers, st.integers(0, 100)
)
steering = st.builds(
    lambda channel, method: [method_frame(channel, method)],
    numbers,
    st.sampled_from([WAIT, SUSPEND, GO_ON_AT_ONCE, LET_1_GO_ON, m.BasicQos()]),
)
others = st.builds(
    lambda kind, channel, payload: [encode_frame(kind, channel, bytes(4) + payload)],
    st.sampled_from([METHOD, HEADER, BODY]),
    st.sampled_from([0, *NUMBERS, 3]),
    bodies,
)
frame_lists = st.lists(
    st.one_of(publishes(), acks, steering, others, st.just([HEARTBEAT_FRAME])), max_size=15
)


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """The frames of the parts, in order or mixed: a channel in disorder must get the same errors, too."""
    frames = [frame for part in draw(frame_lists) for frame in part]
    return b"".join(draw(st.one_of(st.just(frames), st.permutations(frames))))


def wait(reader: FrameReader, number: int) -> None:
    reader.channels[number].wait()


def go_on(reader: FrameReader, number: int) -> None:
    reader.go_on(reader.channels[number])


def resume(reader: FrameReader, _number: int) -> None:
    reader.resume()


moves = st.lists(st.tuples(st.sampled_from([wait, go_on, resume]), numbers), max_size=3)


def by_channel(notes: list[tuple[object, ...]]) -> dict[object, list[tuple[object, ...]]]:
    found: dict[object, list[tuple[object, ...]]] = {}
    for note in notes:
        found.setdefault(note[1], []).append(note)
    return found


def never_stopping(conversation: bytes) -> NotedReader:
    """What the frames are when nothing waits."""
    reader = NotedReader(ReadBuffer())
    reader.feed(PROTOCOL_HEADER + conversation)
    while reader.suspended:
        reader.resume()
    return reader


def finish(reader: FrameReader) -> None:
    """Let everything go on until nothing is left."""
    while reader.suspended or any(channel.waiting for channel in reader.channels.values()):
        reader.resume()
        for number in NUMBERS:
            go_on(reader, number)


def cut(draw: Callable[[st.SearchStrategy[list[int]]], list[int]], data: bytes) -> list[bytes]:
    edges = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=12))})
    return [data[start:stop] for start, stop in pairwise(edges)]


@EXAMPLES
@given(conversations(), st.data())
def test_each_channel_handles_the_same_frames_whenever_it_waits(
    conversation: bytes, data: st.DataObject
) -> None:
    reader = WaitingReader(ReadBuffer())
    for piece in cut(data.draw, PROTOCOL_HEADER + conversation):
        reader.feed(piece)
        for move, number in data.draw(moves):
            move(reader, number)
            held = sum(channel.deferred_bytes for channel in reader.channels.values())
            assert reader.deferred_bytes == held
    finish(reader)
    assert by_channel(reader.notes) == by_channel(never_stopping(conversation).notes)
    assert reader.deferred_bytes == 0


# --- the broker ---


def saying(number: int, method: m.Method) -> list[bytes]:
    return [method_frame(number, method)]


@st.composite
def sayings(draw: st.DrawFn, number: int) -> bytes:
    """What a client says on one channel, about a queue of that channel's own; it may close it and err."""
    queue = f"q{number}"
    parts = {
        "declare": saying(number, m.QueueDeclare(queue=queue, arguments={})),
        "publish": [published("", queue, b"x" * draw(st.integers(0, 9)), channel=number, mandatory=True)],
        "get": saying(number, m.BasicGet(queue=queue, no_ack=True)),
        "qos": saying(number, m.BasicQos()),
        "purge": saying(number, m.QueuePurge(queue=queue)),
        "reopen": saying(number, m.ChannelClose(reply_code=200)) + saying(number, m.ChannelOpen()),
        "fail": [
            *saying(number, m.QueueDeclare(queue="missing", passive=True, arguments={})),
            published("", queue, b"dropped", channel=number),
            *saying(number, m.BasicQos()),
            *saying(number, m.ChannelCloseOk()),
            *saying(number, m.ChannelOpen()),
        ],
    }
    names = draw(st.lists(st.sampled_from(sorted(parts)), max_size=8))
    said = [*saying(number, m.ChannelOpen()), *parts["declare"]]
    return b"".join([*said, *(frame for name in names for frame in parts[name])])


@st.composite
def talks(draw: st.DrawFn) -> bytes:
    """All channels' frames, mixed in any way that keeps each channel's own order."""
    queues = {number: cut_into_frames(draw(sayings(number))) for number in (1, 2, 3)}
    mixed = []
    while left := [number for number, frames in queues.items() if frames]:
        mixed.append(queues[draw(st.sampled_from(left))].pop(0))
    return b"".join(mixed)


def cut_into_frames(data: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(data):
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7])
        frames.append(data[at:stop])
        at = stop
    return frames


def channel_of(client: FakeClient, number: int) -> Channel | None:
    channel = client.connection.channels.get(number)
    assert channel is None or isinstance(channel, Channel)
    return channel


def answers(client: FakeClient) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for frame in client.frames():
        found.setdefault(frame.channel, []).append(frame.payload)
    return found


def opened() -> tuple[FakeBroker, FakeClient]:
    broker = FakeBroker()
    client = broker.connect().open()
    client.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)
    return broker, client


@EXAMPLES
@given(talks(), st.data())
def test_each_channel_is_answered_the_same_whenever_it_waits(talk: bytes, data: st.DataObject) -> None:
    plain_broker, plain = opened()
    plain.connection.feed(talk)
    broker, client = opened()
    for piece in cut(data.draw, talk):
        client.connection.feed(piece)
        for waits, number in data.draw(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=3)):
            if channel := channel_of(client, number):
                channel.wait() if waits else channel.go_on()
    for number in (1, 2, 3):
        if channel := channel_of(client, number):
            channel.go_on()
    assert answers(client) == answers(plain)
    assert {name: queue.message_count for name, queue in broker.vhost.queues.items()} == {
        name: queue.message_count for name, queue in plain_broker.vhost.queues.items()
    }
    assert not broker.world.errors
    assert not plain_broker.world.errors
