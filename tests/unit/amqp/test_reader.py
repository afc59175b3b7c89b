"""FrameReader and ContentReader, as subclasses that note each call."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable

import pytest

from tests.support.frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    body_frames,
    encode_frame,
    encode_header,
    method_frame,
)
from warren.amqp import errors as e
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.reader import ContentReader, FrameReader, ReadBuffer, awaited_bytes

BODY_BYTES_MAX = 100_000


class NotedChannel(ContentReader):
    def __init__(self, number: int, reader: NotedReader) -> None:
        self.reader = reader
        self.body_bytes_max = BODY_BYTES_MAX

    def published(self, body: bytes) -> int:
        self.reader.notes.append(
            ("published", self.number, self.exchange, self.routing_key, self.properties, body)
        )
        if body == b"raise":
            raise e.NotFound("as the test asks")
        return 0

    def acked(self, delivery_tag: int, multiple: bool) -> int:
        self.reader.notes.append(("acked", self.number, delivery_tag, multiple))
        return 0


class NotedReader(FrameReader):
    def __init__(self, buffer: ReadBuffer) -> None:
        self.notes: list[tuple[object, ...]] = []
        self.batches = 0
        for number in (1, 2):
            self.add_channel(NotedChannel(number, self))

    def on_greeting(self, greeting: bytes) -> int:
        self.notes.append(("greeting", greeting))
        return 0

    def on_method(self, number: int, payload: bytes) -> int:
        self.notes.append(("method", number, payload))
        if payload == m.TxSelect().encode():
            self.suspended = True
        return 0

    def on_error(self, number: int, error: Exception) -> int:
        self.notes.append(("error", number, type(error)))
        return 0

    def on_batch_begin(self) -> int:
        return 0

    def on_batch_end(self) -> int:
        self.batches += 1
        return 0


def publish(body: bytes, *pieces: int, channel: int = 1, properties: BasicProperties | None = None) -> bytes:
    frames = method_frame(channel, m.BasicPublish(exchange="e", routing_key="k"))
    frames += encode_frame(HEADER, channel, encode_header(len(body), properties))
    return frames + body_frames(channel, body, pieces or filter(None, (len(body),)))


def greeted() -> NotedReader:
    reader = NotedReader(ReadBuffer())
    reader.feed(PROTOCOL_HEADER)
    reader.notes.clear()
    return reader


def notes_of(data: bytes) -> list[tuple[object, ...]]:
    reader = greeted()
    reader.feed(data)
    return reader.notes


def published(body: bytes, channel: int = 1, properties: bytes = b"\0\0") -> tuple[object, ...]:
    return ("published", channel, b"\x01e", b"\x01k", properties, body)


STREAM = b"".join(
    [
        PROTOCOL_HEADER,
        method_frame(0, m.ChannelOpen()),
        publish(b"hello"),
        publish(b""),
        encode_frame(HEARTBEAT, 0, b""),
        publish(b"0123456789", 3, 3, 4),
        method_frame(1, m.BasicAck(delivery_tag=5, multiple=True)),
        method_frame(1, m.BasicQos()),
    ]
)
STREAM_NOTES: list[tuple[object, ...]] = [
    ("greeting", PROTOCOL_HEADER),
    ("method", 0, m.ChannelOpen().encode()),
    published(b"hello"),
    published(b""),
    published(b"0123456789"),
    ("acked", 1, 5, True),
    ("method", 1, m.BasicQos().encode()),
]


def whole(reader: FrameReader, data: bytes) -> None:
    reader.feed(data)


def byte_by_byte(reader: FrameReader, data: bytes) -> None:
    for at in range(len(data)):
        reader.feed(data[at : at + 1])


def in_pieces_of_five(reader: FrameReader, data: bytes) -> None:
    for at in range(0, len(data), 5):
        reader.feed(data[at : at + 5])


@pytest.mark.parametrize("feed", [whole, byte_by_byte, in_pieces_of_five])
def test_frames_are_the_same_however_the_bytes_come(feed: Callable[[FrameReader, bytes], None]) -> None:
    reader = NotedReader(ReadBuffer())
    feed(reader, STREAM)
    assert reader.notes == STREAM_NOTES
    assert reader.received_bytes == len(STREAM)


def test_incomplete_frame_behind_a_whole_one_waits_for_its_rest() -> None:
    reader = greeted()
    frames = publish(b"hello") + method_frame(1, m.BasicQos())
    reader.feed(frames[:-1])
    assert reader.notes == [published(b"hello")]
    reader.feed(frames[-1:])
    assert reader.notes == [published(b"hello"), ("method", 1, m.BasicQos().encode())]


def test_connections_that_share_the_buffer_do_not_mix_their_bytes() -> None:
    buffer = ReadBuffer()
    readers = [NotedReader(buffer), NotedReader(buffer)]
    for at in range(0, len(STREAM), 7):
        for reader in readers:
            reader.feed(STREAM[at : at + 7])
    assert [reader.notes for reader in readers] == [STREAM_NOTES, STREAM_NOTES]


def test_more_than_the_buffer_holds_is_read_in_turns() -> None:
    reader = NotedReader(ReadBuffer(8192))
    reader.feed(PROTOCOL_HEADER + publish(b"x" * 3000) * 20)
    assert reader.notes[1:] == [published(b"x" * 3000)] * 20
    assert reader.batches > 1


def test_batch_ends_once_for_all_that_one_read_brought() -> None:
    reader = greeted()
    reader.batches = 0
    reader.feed(publish(b"hello") * 10)
    assert reader.batches == 1


@pytest.mark.parametrize("pieces", [(0, 3), (0, 0, 3), (1, 0, 2), (0, 1, 2), (0, 1, 0, 2)])
def test_empty_body_frames_change_neither_this_message_nor_the_next(pieces: tuple[int, ...]) -> None:
    """Nor do they change memory behind the body: a longer body follows, which would show it."""
    frames = publish(b"abc", *pieces) + publish(b"defg", 2, 2)
    assert notes_of(frames) == [published(b"abc"), published(b"defg")]


def test_messages_of_two_channels_may_be_interleaved() -> None:
    first, second = publish(b"first", 2, 3), publish(b"second", 3, 3, channel=2)
    cut = len(first) - len(encode_frame(BODY, 1, b"rst"))
    assert notes_of(first[:cut] + second + first[cut:]) == [published(b"second", 2), published(b"first")]


MALFORMED: list[tuple[str, bytes, int, type[Exception]]] = [
    ("a method frame too short for an id", encode_frame(METHOD, 1, b"\0\x3c\0"), 1, e.SyntaxFault),
    ("an unknown frame type", encode_frame(7, 1, b""), 1, e.FrameError),
    ("a heartbeat on a channel", encode_frame(HEARTBEAT, 1, b""), 1, e.UnexpectedFrame),
    ("content on channel 0", encode_frame(BODY, 0, b"x"), 0, e.UnexpectedFrame),
    ("content on a channel that is not open", encode_frame(BODY, 9, b"x"), 9, e.ChannelFault),
    ("a body that nobody announced", encode_frame(BODY, 1, b"x"), 1, e.UnexpectedFrame),
    (
        "a header that nobody announced",
        encode_frame(HEADER, 1, encode_header(0)),
        1,
        e.UnexpectedFrame,
    ),
    (
        "basic.publish without its bits",
        encode_frame(METHOD, 1, m.BasicPublish().encode()[:-1]),
        1,
        e.SyntaxFault,
    ),
    (
        "basic.publish with a byte too many",
        encode_frame(METHOD, 1, m.BasicPublish().encode() + b"\0"),
        1,
        e.SyntaxFault,
    ),
    ("basic.publish cut at its names", encode_frame(METHOD, 1, b"\0\x3c\0\x28\0\0"), 1, e.SyntaxFault),
]


@pytest.mark.parametrize(
    ("frame", "channel", "error"), [c[1:] for c in MALFORMED], ids=[c[0] for c in MALFORMED]
)
def test_malformed_frame_is_an_error_and_the_next_one_is_read(
    frame: bytes, channel: int, error: type[Exception]
) -> None:
    assert notes_of(frame + method_frame(1, m.BasicQos())) == [
        ("error", channel, error),
        ("method", 1, m.BasicQos().encode()),
    ]


BAD_CONTENT: list[tuple[str, bytes, type[Exception]]] = [
    ("a body in place of a header", encode_frame(BODY, 1, b"x"), e.UnexpectedFrame),
    ("a method in place of a header", method_frame(1, m.BasicQos()), e.UnexpectedFrame),
    ("a header of another class", encode_frame(HEADER, 1, encode_header(0, class_id=50)), e.UnexpectedFrame),
    ("a header too short", encode_frame(HEADER, 1, encode_header(0)[:-1]), e.SyntaxFault),
    (
        "a body larger than the limit",
        encode_frame(HEADER, 1, encode_header(BODY_BYTES_MAX + 1)),
        e.PreconditionFailed,
    ),
    (
        "a body longer than announced",
        encode_frame(HEADER, 1, encode_header(1)) + encode_frame(BODY, 1, b"xy"),
        e.UnexpectedFrame,
    ),
    (
        "a second body frame longer than what is left",
        encode_frame(HEADER, 1, encode_header(3)) + encode_frame(BODY, 1, b"xy") * 2,
        e.UnexpectedFrame,
    ),
    ("properties cut short", encode_frame(HEADER, 1, encode_header(0)[:-2] + b"\x80\0\x05ab"), e.SyntaxFault),
    ("properties with a byte too many", encode_frame(HEADER, 1, encode_header(0) + b"\0"), e.SyntaxFault),
    (
        "properties with an unknown flag",
        encode_frame(HEADER, 1, encode_header(0)[:-2] + b"\0\x01"),
        e.SyntaxFault,
    ),
    (
        "headers longer than the frame",
        encode_frame(HEADER, 1, encode_header(0)[:-2] + b"\x20\0\0\0\0\xff"),
        e.SyntaxFault,
    ),
    (
        "headers with an unknown type",
        encode_frame(HEADER, 1, encode_header(0)[:-2] + b"\x20\0\0\0\0\x04\x01kZ\0"),
        e.SyntaxFault,
    ),
]


@pytest.mark.parametrize(("frames", "error"), [c[1:] for c in BAD_CONTENT], ids=[c[0] for c in BAD_CONTENT])
def test_content_that_does_not_follow_the_rules_is_an_error(frames: bytes, error: type[Exception]) -> None:
    start = method_frame(1, m.BasicPublish(exchange="e", routing_key="k"))
    assert notes_of(start + frames) == [("error", 1, error)]


@pytest.mark.parametrize(
    "data",
    [
        publish(b"x")[:-1] + b"\xcd" + publish(b"y"),
        struct.pack(">BHI", METHOD, 1, 4097) + bytes(4098) + publish(b"y"),
        struct.pack(">BHI", METHOD, 1, 2**32 - 1) + bytes(100),
    ],
    ids=["wrong end octet", "larger than frame_max", "four gigabytes"],
)
def test_what_follows_a_frame_without_sound_bounds_is_not_read(data: bytes) -> None:
    notes = notes_of(data)
    assert notes == [("error", 1, e.FrameError)]


def test_error_of_a_handler_is_told_and_reading_goes_on() -> None:
    assert notes_of(publish(b"raise") + publish(b"next")) == [
        published(b"raise"),
        ("error", 1, e.NotFound),
        published(b"next"),
    ]


def test_suspended_reader_keeps_what_comes_until_it_resumes() -> None:
    reader = greeted()
    reader.feed(method_frame(1, m.TxSelect()) + publish(b"later"))
    reader.feed(method_frame(1, m.BasicQos()))
    assert reader.notes == [("method", 1, m.TxSelect().encode())]
    reader.resume()
    assert reader.notes[1:] == [published(b"later"), ("method", 1, m.BasicQos().encode())]


def test_closing_reader_lets_only_methods_of_channel_0_through() -> None:
    reader = greeted()
    reader.closing = True
    reader.feed(
        publish(b"x")
        + method_frame(1, m.BasicQos())
        + encode_frame(7, 0, b"")
        + method_frame(0, m.TxCommit())
    )
    assert reader.notes == [("method", 0, m.TxCommit().encode())]


def test_discarding_channel_drops_content_and_hands_methods_on() -> None:
    reader = greeted()
    reader.channels[1].discard()
    reader.feed(
        publish(b"x") + method_frame(1, m.BasicAck(delivery_tag=1)) + method_frame(1, m.ChannelCloseOk())
    )
    assert reader.channels[1].discarding
    assert [note[2] for note in reader.notes] == [
        m.BasicPublish(exchange="e", routing_key="k").encode(),
        m.BasicAck(delivery_tag=1).encode(),
        m.ChannelCloseOk().encode(),
    ]


def test_removed_channel_gets_nothing_more() -> None:
    reader = greeted()
    reader.feed(publish(b"x"))
    reader.remove_channel(1)
    reader.notes.clear()
    reader.feed(encode_frame(BODY, 1, b"x"))
    assert reader.notes == [("error", 1, e.ChannelFault)]


def test_properties_that_the_broker_acts_upon_are_found() -> None:
    reader = greeted()
    properties = BasicProperties(
        content_type="t",
        headers={"x": [1, {"CC": None}], "BCC": ["k"]},
        delivery_mode=2,
        priority=1,
        reply_to="reply",
        expiration="100",
        timestamp=1,
        user_id="me",
        cluster_id="last",
    )
    reader.feed(publish(b"x", properties=properties))
    channel = reader.channels[1]
    assert channel.delivery_mode == 2
    assert (channel.reply_to, channel.expiration, channel.user_id) == (b"reply", b"100", b"me")
    assert channel.has_routing_headers
    reader.feed(publish(b"x"))
    assert channel.delivery_mode == 0
    assert (channel.reply_to, channel.expiration, channel.user_id) == (None, None, None)
    assert not channel.has_routing_headers


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"CC": ["k"]}, True),
        ({"a": 1, "b": "x", "BCC": ["k"]}, True),
        ({"c": {"CC": ["k"]}}, False),
        ({"CCC": 1, "cc": 1, "C": 1}, False),
        ({}, False),
    ],
)
def test_routing_headers_are_found_by_their_names(headers: dict[str, object], found: bool) -> None:
    reader = greeted()
    reader.feed(publish(b"x", properties=BasicProperties(headers=headers)))  # type: ignore[arg-type]
    assert reader.channels[1].has_routing_headers is found


def test_what_did_not_change_is_not_parsed_again() -> None:
    reader = greeted()
    channel = reader.channels[1]
    reader.feed(publish(b"x"))
    channel.publish_changed = channel.properties_changed = False
    reader.feed(publish(b"y"))
    assert (channel.publish_changed, channel.properties_changed) == (False, False)
    reader.feed(publish(b"z", properties=BasicProperties(priority=1)))
    assert (channel.publish_changed, channel.properties_changed) == (False, True)


def test_publish_that_failed_to_parse_is_not_taken_for_the_one_before() -> None:
    """The same bytes twice, in a header that cannot be parsed, are two errors."""
    bad = method_frame(1, m.BasicPublish(exchange="e", routing_key="k")) + encode_frame(
        HEADER, 1, encode_header(0)[:-2] + b"\0\x01"
    )
    reader = greeted()
    reader.feed(bad)
    reader.feed(encode_frame(HEADER, 1, encode_header(0)[:-2] + b"\0\x01"))
    assert reader.notes == [("error", 1, e.SyntaxFault)] * 2


def test_greeting_is_the_first_eight_bytes_whatever_they_are() -> None:
    reader = NotedReader(ReadBuffer())
    reader.feed(b"GET / HT")
    assert reader.notes == [("greeting", b"GET / HT")]


def test_reads_can_be_made_small_but_grow_with_the_frame_that_is_there_in_part() -> None:
    reader = NotedReader(ReadBuffer())
    whole = len(reader.writable_view())
    reader.read_bytes_max = 100
    assert len(reader.writable_view()) == 100
    reader.feed(PROTOCOL_HEADER + encode_frame(METHOD, 1, bytes(4_000))[:3_000])
    assert len(reader.writable_view()) == 3_000
    reader.read_bytes_max = 2 * whole
    assert len(reader.writable_view()) == whole - 3_000
    reader.read_bytes_max = 0
    assert len(reader.writable_view()) == whole - 3_000


@pytest.mark.parametrize("end", ["complete", "discard", "wrong frame", "lost"])
def test_bytes_that_are_announced_count_as_awaited_until_they_come(end: str) -> None:
    gc.collect()  # readers of other tests
    before = awaited_bytes()
    reader = greeted()
    data = publish(b"0123456789", 3, 3, 4)
    last = len(encode_frame(BODY, 1, b"6789"))
    reader.feed(data[:-last])
    assert awaited_bytes() - before == 4
    if end == "complete":
        reader.feed(data[-last:])
    elif end == "discard":
        reader.channels[1].discard()
    elif end == "wrong frame":
        reader.feed(encode_frame(BODY, 1, b"more than is due"))
        reader.channels[1].discard()
    reader.channels.clear()  # type: ignore[attr-defined]  # it is a dict
    del reader
    gc.collect()
    assert awaited_bytes() == before
