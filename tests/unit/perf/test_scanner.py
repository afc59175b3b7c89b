from __future__ import annotations

import itertools

import pytest

from tests.support.frames import BODY, HEARTBEAT_FRAME, METHOD, encode_frame, method_frame
from tests.unit.perf.wire import ack, delivery, nack, stamped
from warren.amqp.methods import BasicAck, BasicQosOk, ConnectionBlocked
from warren.client.errors import ClientError
from warren.client.frames import FRAME_MAX
from warren.perf.scanner import Histogram, Scanner, stamp

NOW_NS = 5_000_000


def feed(scanner: Scanner, *pieces: bytes) -> Scanner:
    for piece in pieces:
        scanner.feed(bytearray(piece), len(piece), NOW_NS)
    return scanner


def seen(*pieces: bytes) -> tuple[object, ...]:
    """All results of a scanner that gets the bytes in these pieces."""
    latencies = Histogram()
    scanner = feed(Scanner(ack_every=2, latencies=latencies), *pieces)
    counts = (scanner.deliveries, scanner.confirmed, scanner.nacked)
    return (*counts, scanner.take_acks(), scanner.take_methods(), latencies.count, latencies.max_ns)


STREAM = b"".join((
    delivery(1, stamped(NOW_NS - 100)),
    ack(2, multiple=True),
    delivery(2),
    HEARTBEAT_FRAME,
    delivery(3, b"short"),
    method_frame(0, ConnectionBlocked(reason="low on memory")),
    nack(3),
    delivery(4, stamped(NOW_NS - 300, size=200), bytes(100)),
    ack(4),
))  # fmt: skip


def test_all_that_arrives_at_once_is_counted() -> None:
    acks = method_frame(1, BasicAck(delivery_tag=2, multiple=True)) + method_frame(
        1, BasicAck(delivery_tag=4, multiple=True)
    )
    blocked = ConnectionBlocked(reason="low on memory").encode()
    assert seen(STREAM) == (4, 3, 1, acks, [(0, blocked)], 2, 300)


def test_a_stream_split_at_any_byte_gives_the_same_counts() -> None:
    whole = seen(STREAM)
    for at in range(1, len(STREAM)):
        assert seen(STREAM[:at], STREAM[at:]) == whole, f"split at byte {at}"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 50])
def test_a_stream_in_pieces_of_one_size_gives_the_same_counts(size: int) -> None:
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert seen(*pieces) == seen(STREAM)


def test_only_the_given_size_of_the_buffer_is_read() -> None:
    scanner = Scanner()
    data = delivery(1, b"x")
    scanner.feed(bytearray(data + data), len(data), NOW_NS)
    assert scanner.deliveries == 1


def test_a_size_beyond_the_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than data"):
        Scanner().feed(bytearray(8), 9, NOW_NS)


def test_a_partial_frame_counts_only_when_complete() -> None:
    data = delivery(1, b"body")
    scanner = feed(Scanner(), data[:-1])
    assert scanner.deliveries == 0
    assert feed(scanner, data[-1:]).deliveries == 1


def test_a_body_in_several_frames_is_one_delivery() -> None:
    assert feed(Scanner(), delivery(1, bytes(100), bytes(100), bytes(1))).deliveries == 1


@pytest.mark.parametrize("order", list(itertools.permutations([ack(1), ack(3), ack(2, multiple=True)])))
def test_confirms_count_each_message_once_in_any_order(order: tuple[bytes, ...]) -> None:
    assert feed(Scanner(), *order).confirmed == 3


def test_a_confirm_that_comes_twice_counts_once() -> None:
    assert feed(Scanner(), ack(1), ack(1), ack(3), ack(3), ack(3, multiple=True)).confirmed == 3


def test_confirms_far_ahead_of_a_slow_message_are_kept() -> None:
    scanner = feed(Scanner(), *(ack(tag) for tag in range(2, 5001)))
    assert scanner.confirmed == 4999
    assert feed(scanner, ack(5000, multiple=True)).confirmed == 5000
    assert feed(scanner, ack(5001), ack(5003), ack(5004, multiple=True)).confirmed == 5004


def test_a_confirm_absurdly_far_ahead_is_an_error() -> None:
    with pytest.raises(ClientError, match="but not yet 1"):
        feed(Scanner(), ack(2**40))


def test_refused_messages_are_counted_apart() -> None:
    scanner = feed(Scanner(), ack(2, multiple=True), nack(4, multiple=True))
    assert (scanner.confirmed, scanner.nacked) == (2, 2)


def test_every_ack_names_the_latest_delivery_of_its_batch() -> None:
    scanner = feed(Scanner(ack_every=2), *(delivery(tag, b"x") for tag in range(1, 6)))
    assert scanner.take_acks() == ack(2, multiple=True) + ack(4, multiple=True)
    assert feed(scanner, delivery(6, b"x")).take_acks() == ack(6, multiple=True)
    assert scanner.take_acks() == b""


def test_an_ack_for_each_delivery_is_not_multiple() -> None:
    assert feed(Scanner(ack_every=1), delivery(9, b"x")).take_acks() == ack(9)


def test_auto_ack_writes_no_acks() -> None:
    assert feed(Scanner(), delivery(1, b"x")).take_acks() == b""


def test_methods_are_taken_once() -> None:
    scanner = feed(Scanner(), method_frame(1, BasicQosOk()))
    assert scanner.take_methods() == [(1, BasicQosOk().encode())]
    assert scanner.take_methods() == []


def test_a_stamp_from_the_future_is_no_latency() -> None:
    latencies = Histogram()
    feed(Scanner(latencies=latencies), delivery(1, stamped(NOW_NS + 1)))
    assert latencies.count == 0


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak AMQP"),
        (b"AMQP\0\0\x09\x01", "does not speak AMQP"),
        (method_frame(1, BasicQosOk())[:-1] + b"x", "end octet"),
        (encode_frame(METHOD, 1, bytes(FRAME_MAX + 1)), "more than was agreed"),
        (encode_frame(METHOD, 1, b"\0\x3c"), "malformed"),
        (encode_frame(METHOD, 1, b"\0\x3c\0\x3c"), "malformed"),
        (encode_frame(METHOD, 1, b"\0\x3c\0\x3c\xff" + bytes(9)), "malformed"),
        (encode_frame(METHOD, 1, b"\0\x3c\0\x50\0"), "malformed"),
        (encode_frame(BODY, 1, b"nobody announced me"), "malformed"),
    ],
)
def test_what_is_not_the_protocol_is_an_error(data: bytes, complaint: str) -> None:
    with pytest.raises(ClientError, match=complaint):
        feed(Scanner(), data)


def test_stamps_are_written_into_each_message() -> None:
    data = bytearray(b"-" * 30)
    stamp(data, 2, 10, 2, 77)
    assert data == b"--" + stamped(77, 8) + b"--" + stamped(77, 8) + b"-" * 10


@pytest.mark.parametrize(("offset", "count"), [(-1, 1), (3, 1), (2, 2)])
def test_stamps_never_go_beyond_the_buffer(offset: int, count: int) -> None:
    with pytest.raises(ValueError, match="not fit"):
        stamp(bytearray(10), offset, 10, count, 1)
