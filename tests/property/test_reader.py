"""However the bytes of a conversation are cut, the same frames come out of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    encode_frame,
    encode_header,
    method_frame,
)
from tests.unit.amqp.test_reader import NotedReader
from warren.amqp import methods as m
from warren.amqp.reader import ReadBuffer
from warren.amqp.writer import Output

channels = st.sampled_from([1, 2, 3])
bodies = st.binary(max_size=40)


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    channel, body = draw(channels), draw(bodies)
    publish = m.BasicPublish(exchange=draw(st.sampled_from(["", "e"])), routing_key="k")
    frames = method_frame(channel, publish)
    frames += encode_frame(HEADER, channel, encode_header(len(body) + draw(st.sampled_from([0, 0, 0, 1]))))
    cut = draw(st.integers(0, len(body)))
    return frames + encode_frame(BODY, channel, body[:cut]) + encode_frame(BODY, channel, body[cut:])


others = st.builds(encode_frame, st.sampled_from([METHOD, HEADER, BODY, HEARTBEAT, 7]), channels, bodies)
acks = st.builds(
    lambda channel, tag: method_frame(channel, m.BasicAck(delivery_tag=tag)),
    channels,
    st.integers(0, 100),
)
conversations = st.lists(st.one_of(publishes(), acks, others), max_size=12).map(b"".join)


@given(conversations, st.data())
def test_any_cutting_gives_the_same_frames_and_errors(conversation: bytes, data: st.DataObject) -> None:
    whole, pieces = NotedReader(ReadBuffer()), NotedReader(ReadBuffer())
    stream = PROTOCOL_HEADER + conversation
    whole.feed(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        pieces.feed(stream[start:stop])
    assert pieces.notes == whole.notes


@given(st.lists(st.binary(max_size=20_000), max_size=6), st.integers(4096, 9000))
def test_what_an_output_writes_a_reader_reads(sent: list[bytes], frame_max: int) -> None:
    output = Output([], None)
    output.frame_max = frame_max
    publish = m.BasicPublish(exchange="e", routing_key="k").encode()
    for body in sent:
        output.method(1, publish)
        output.content(1, b"\0\0", body)
    reader = NotedReader(ReadBuffer())
    reader.frame_max = frame_max
    reader.feed(PROTOCOL_HEADER)
    reader.feed(b"".join(output.take()))
    assert [note[-1] for note in reader.notes[1:]] == sent
