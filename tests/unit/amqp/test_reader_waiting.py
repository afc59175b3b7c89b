"""Channels that wait: their frames are deferred, in order, and those of other channels are not."""

from __future__ import annotations

import pytest

from tests.support.frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    encode_frame,
    encode_header,
    method_frame,
)
from tests.unit.amqp.test_reader import NotedReader, publish, published
from warren.amqp import errors as e
from warren.amqp import methods as m
from warren.amqp.reader import ReadBuffer

WAIT, SUSPEND, GO_ON_AT_ONCE, LET_1_GO_ON, CLOSE, REMOVE = (
    m.TxCommit(),
    m.TxSelect(),
    m.ConfirmSelect(),
    m.TxRollback(),
    m.ConnectionCloseOk(),
    m.ChannelCloseOk(),
)


class WaitingReader(NotedReader):
    """Methods make its channels wait, go on, and end."""

    def __init__(self, buffer: ReadBuffer) -> None:
        super().__init__(buffer)
        self.deferred_by_batch: list[int] = []

    def on_method(self, number: int, payload: bytes) -> int:
        super().on_method(number, payload)
        if payload == WAIT.encode():
            self.channels[number].wait()
        elif payload == GO_ON_AT_ONCE.encode():
            self.channels[number].wait()
            self.go_on(self.channels[number])
        elif payload == LET_1_GO_ON.encode():
            self.go_on(self.channels[1])
        elif payload == CLOSE.encode():
            self.closing = True
        elif payload == REMOVE.encode():
            self.remove_channel(number)
        return 0

    def on_deferred(self) -> int:
        self.deferred_by_batch.append(self.deferred_bytes)
        return 0

    def told(self) -> list[tuple[object, ...]]:
        """The notes since the last call."""
        notes, self.notes = self.notes, []
        return notes


@pytest.fixture
def reader() -> WaitingReader:
    reader = WaitingReader(ReadBuffer())
    reader.feed(PROTOCOL_HEADER)
    reader.told()
    return reader


@pytest.fixture
def waiting(reader: WaitingReader) -> WaitingReader:
    """A reader whose channel 1 waits."""
    reader.channels[1].wait()
    return reader


def called(method: m.Method, channel: int = 1) -> tuple[object, ...]:
    return ("method", channel, method.encode())


def qos(count: int) -> m.BasicQos:
    """A method that can be told from others of its kind."""
    return m.BasicQos(prefetch_count=count)


def ack(tag: int) -> bytes:
    return method_frame(1, m.BasicAck(delivery_tag=tag))


# --- what is deferred ---


def test_frames_of_a_waiting_channel_are_kept_until_it_goes_on_in_their_order(waiting: WaitingReader) -> None:
    waiting.feed(publish(b"hello", 2, 3) + ack(5))
    waiting.feed(method_frame(1, qos(1)) + publish(b""))
    assert waiting.told() == []
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [published(b"hello"), ("acked", 1, 5, False), called(qos(1)), published(b"")]


def test_other_channels_and_channel_0_go_on_meanwhile(waiting: WaitingReader) -> None:
    waiting.feed(
        publish(b"first")
        + publish(b"second", channel=2)
        + ack(1)
        + method_frame(0, m.BasicQos())
        + method_frame(2, m.BasicQos())
    )
    assert waiting.told() == [published(b"second", 2), called(m.BasicQos(), 0), called(m.BasicQos(), 2)]


def test_wait_takes_effect_with_the_next_frame_of_the_same_read(reader: WaitingReader) -> None:
    reader.feed(ack(1) + method_frame(1, WAIT) + ack(2))
    assert reader.told() == [("acked", 1, 1, False), called(WAIT)]
    assert reader.channels[1].waiting
    reader.go_on(reader.channels[1])
    assert not reader.channels[1].waiting
    assert reader.told() == [("acked", 1, 2, False)]


def test_message_that_is_half_there_when_its_channel_waits_is_completed_behind(reader: WaitingReader) -> None:
    frames = publish(b"0123456789", 5, 5)
    cut = len(frames) - len(encode_frame(BODY, 1, b"56789"))
    reader.feed(frames[:cut])
    reader.channels[1].wait()
    reader.feed(frames[cut:])
    assert reader.told() == []
    reader.go_on(reader.channels[1])
    assert reader.told() == [published(b"0123456789")]


def test_deferred_frames_outlive_the_buffer_they_came_in() -> None:
    buffer = ReadBuffer()
    reader, other = WaitingReader(buffer), WaitingReader(buffer)
    for each in (reader, other):
        each.feed(PROTOCOL_HEADER)
        each.told()
    reader.channels[1].wait()
    reader.feed(publish(b"mine"))
    other.feed(publish(b"else") * 3)
    reader.go_on(reader.channels[1])
    assert reader.told() == [published(b"mine")]


def test_every_deferred_frame_counts_even_an_empty_one(waiting: WaitingReader) -> None:
    channel = waiting.channels[1]
    waiting.feed(encode_frame(BODY, 1, b"") * 10)
    empty = channel.deferred_bytes
    assert empty > 10 * len(encode_frame(BODY, 1, b""))
    waiting.feed(encode_frame(BODY, 1, bytes(1000)))
    assert channel.deferred_bytes == waiting.deferred_bytes == empty * 11 // 10 + 1000
    waiting.go_on(channel)
    assert (channel.deferred_bytes, waiting.deferred_bytes, channel.deferred) == (0, 0, None)


def test_deferred_bytes_of_a_connection_are_those_of_all_its_channels(waiting: WaitingReader) -> None:
    waiting.channels[2].wait()
    waiting.feed(publish(b"one") + publish(b"two", channel=2))
    assert waiting.deferred_bytes == sum(waiting.channels[number].deferred_bytes for number in (1, 2))
    waiting.go_on(waiting.channels[2])
    assert waiting.deferred_bytes == waiting.channels[1].deferred_bytes > 0


def test_connection_is_told_at_each_end_of_a_batch_until_nothing_is_deferred(waiting: WaitingReader) -> None:
    waiting.feed(ack(1) * 2)
    size = waiting.deferred_bytes
    waiting.feed(HEARTBEAT_FRAME)
    waiting.go_on(waiting.channels[1])
    waiting.feed(HEARTBEAT_FRAME)
    assert waiting.deferred_by_batch == [size, size, 0]


def test_channel_that_does_not_wait_defers_nothing(reader: WaitingReader) -> None:
    reader.feed(publish(b"x"))
    assert (reader.channels[1].deferred, reader.deferred_by_batch) == (None, [])


# --- what is not ---

AT_ONCE: list[tuple[str, bytes, list[tuple[object, ...]]]] = [
    ("a heartbeat", HEARTBEAT_FRAME, []),
    ("a heartbeat on the channel", encode_frame(HEARTBEAT, 1, b""), [("error", 1, e.UnexpectedFrame)]),
    ("an unknown frame type", encode_frame(7, 1, b""), [("error", 1, e.FrameError)]),
    ("a method too short for an id", encode_frame(METHOD, 1, b"\0\x3c\0"), [("error", 1, e.SyntaxFault)]),
    ("a wrong end octet", encode_frame(METHOD, 1, bytes(4))[:-1] + b"x", [("error", 1, e.FrameError)]),
]


@pytest.mark.parametrize(("frame", "told"), [c[1:] for c in AT_ONCE], ids=[c[0] for c in AT_ONCE])
def test_heartbeats_and_malformed_frames_are_dealt_with_at_once(
    waiting: WaitingReader, frame: bytes, told: list[tuple[object, ...]]
) -> None:
    waiting.feed(frame)
    assert waiting.told() == told
    assert waiting.deferred_bytes == 0


def test_closing_reader_defers_nothing(waiting: WaitingReader) -> None:
    waiting.closing = True
    waiting.feed(publish(b"x") + method_frame(1, m.BasicQos()))
    assert waiting.deferred_bytes == 0


# --- going on ---


def test_go_on_ends_the_batch_once(waiting: WaitingReader) -> None:
    waiting.feed(publish(b"x") * 3)
    before = waiting.batches
    waiting.go_on(waiting.channels[1])
    assert waiting.batches == before + 1


def test_go_on_with_nothing_deferred_ends_the_batch_too(waiting: WaitingReader) -> None:
    before = waiting.batches
    waiting.go_on(waiting.channels[1])
    assert waiting.batches == before + 1
    waiting.feed(ack(1))
    assert waiting.told() == [("acked", 1, 1, False)]


def test_error_in_a_deferred_frame_is_told_and_the_next_is_dealt_with(waiting: WaitingReader) -> None:
    waiting.feed(publish(b"raise") + encode_frame(HEADER, 1, encode_header(0)) + ack(1))
    assert waiting.told() == []
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [
        published(b"raise"),
        ("error", 1, e.NotFound),
        ("error", 1, e.UnexpectedFrame),
        ("acked", 1, 1, False),
    ]


def test_channel_that_waits_again_keeps_the_rest_and_what_comes_behind_it(waiting: WaitingReader) -> None:
    waiting.feed(ack(1) + method_frame(1, WAIT) + ack(2))
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [("acked", 1, 1, False), called(WAIT)]
    waiting.feed(ack(3))
    assert waiting.told() == []
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [("acked", 1, 2, False), ("acked", 1, 3, False)]


def test_go_on_inside_the_handler_that_waited_changes_nothing(reader: WaitingReader) -> None:
    before = reader.batches
    reader.feed(method_frame(1, GO_ON_AT_ONCE) + ack(1))
    assert reader.told() == [called(GO_ON_AT_ONCE), ("acked", 1, 1, False)]
    assert reader.batches == before + 1


def test_go_on_inside_a_deferred_handler_does_not_nest(waiting: WaitingReader) -> None:
    waiting.feed(method_frame(1, GO_ON_AT_ONCE) * 3 + ack(1))
    before = waiting.batches
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [called(GO_ON_AT_ONCE)] * 3 + [("acked", 1, 1, False)]
    assert waiting.batches == before + 1


def test_go_on_inside_another_channels_handler_comes_behind_that_read_and_in_order(
    waiting: WaitingReader,
) -> None:
    before = waiting.batches
    waiting.feed(ack(1) + method_frame(2, LET_1_GO_ON) + ack(2) + method_frame(2, m.BasicQos()))
    assert waiting.told() == [
        called(LET_1_GO_ON, 2),
        called(m.BasicQos(), 2),
        ("acked", 1, 1, False),
        ("acked", 1, 2, False),
    ]
    assert waiting.batches == before + 1


# --- suspended ---


def test_reader_suspended_by_a_deferred_frame_resumes_with_the_rest_before_newer_ones(
    waiting: WaitingReader,
) -> None:
    waiting.feed(ack(1) + method_frame(1, SUSPEND) + ack(2))
    waiting.go_on(waiting.channels[1])
    waiting.feed(ack(3) + method_frame(2, m.BasicQos()))
    assert waiting.told() == [("acked", 1, 1, False), called(SUSPEND)]
    waiting.resume()
    assert waiting.told() == [("acked", 1, 2, False), ("acked", 1, 3, False), called(m.BasicQos(), 2)]


def test_channel_that_goes_on_while_the_reader_is_suspended_does_so_when_it_resumes(
    waiting: WaitingReader,
) -> None:
    waiting.feed(ack(1) + method_frame(2, SUSPEND))
    waiting.told()
    waiting.go_on(waiting.channels[1])
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == []
    before = waiting.batches
    waiting.resume()
    assert waiting.told() == [("acked", 1, 1, False)]
    assert waiting.batches == before + 1


def test_reader_may_be_suspended_again_and_again_among_deferred_frames(waiting: WaitingReader) -> None:
    waiting.feed((method_frame(1, SUSPEND) + ack(1)) * 3)
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [called(SUSPEND)]
    for _ in range(2):
        waiting.resume()
        assert waiting.told() == [("acked", 1, 1, False), called(SUSPEND)]
    waiting.resume()
    assert waiting.told() == [("acked", 1, 1, False)]


def test_channel_that_waits_while_its_rest_is_suspended_is_not_woken_by_resume(
    waiting: WaitingReader,
) -> None:
    waiting.feed(method_frame(1, SUSPEND) + ack(1))
    waiting.go_on(waiting.channels[1])
    waiting.told()
    waiting.channels[1].wait()
    waiting.resume()
    assert waiting.told() == []
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [("acked", 1, 1, False)]


# --- the end ---


def test_what_is_deferred_when_the_connection_becomes_closing_is_dropped(waiting: WaitingReader) -> None:
    waiting.feed(ack(1) + method_frame(1, CLOSE) + ack(2) + publish(b"x"))
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [("acked", 1, 1, False), called(CLOSE)]
    assert waiting.deferred_bytes == 0


def test_discarding_channel_has_only_its_methods_handed_on(waiting: WaitingReader) -> None:
    waiting.feed(publish(b"x") + method_frame(1, m.ChannelClose(reply_code=200)))
    waiting.channels[1].discard()
    assert not waiting.channels[1].waiting
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [
        called(m.BasicPublish(exchange="e", routing_key="k")),
        called(m.ChannelClose(reply_code=200)),
    ]


def test_channel_that_is_discarded_with_nothing_deferred_is_heard_at_once(waiting: WaitingReader) -> None:
    waiting.channels[1].discard()
    waiting.feed(method_frame(1, m.ChannelClose(reply_code=200)))
    assert waiting.told() == [called(m.ChannelClose(reply_code=200))]


def test_discarding_channel_does_not_wait(reader: WaitingReader) -> None:
    reader.channels[1].discard()
    reader.channels[1].wait()
    reader.feed(method_frame(1, m.BasicQos()))
    assert reader.told() == [called(m.BasicQos())]


def test_removed_channel_takes_its_deferred_frames_with_it(waiting: WaitingReader) -> None:
    channel = waiting.channels[1]
    waiting.feed(publish(b"x"))
    waiting.remove_channel(1)
    assert (waiting.deferred_bytes, channel.deferred, channel.waiting) == (0, None, False)
    waiting.go_on(channel)
    assert waiting.told() == []


def test_frames_behind_the_end_of_a_channel_are_as_if_they_had_just_come(waiting: WaitingReader) -> None:
    waiting.feed(ack(1) + method_frame(1, REMOVE) + method_frame(1, qos(1)) + encode_frame(BODY, 1, b"x"))
    waiting.go_on(waiting.channels[1])
    assert waiting.told() == [
        ("acked", 1, 1, False),
        called(REMOVE),
        called(qos(1)),
        ("error", 1, e.ChannelFault),
    ]
    assert waiting.deferred_bytes == 0


def test_all_deferred_frames_can_be_dropped_even_those_that_were_to_be_dealt_with(
    waiting: WaitingReader,
) -> None:
    waiting.channels[2].wait()
    waiting.feed(method_frame(1, SUSPEND) + ack(1) + publish(b"x", channel=2))
    waiting.go_on(waiting.channels[1])
    waiting.told()
    waiting.drop_all_deferred()
    assert waiting.deferred_bytes == 0
    waiting.resume()
    assert waiting.told() == []


def test_frames_left_behind_the_end_of_a_channel_are_dropped_with_the_others(waiting: WaitingReader) -> None:
    waiting.feed(method_frame(1, REMOVE) + method_frame(1, SUSPEND) + method_frame(1, qos(1)))
    waiting.go_on(waiting.channels[1])
    assert waiting.deferred_bytes > 0
    waiting.drop_all_deferred()
    assert waiting.deferred_bytes == 0
    waiting.told()
    waiting.resume()
    assert waiting.told() == []
