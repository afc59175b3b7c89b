"""Output: which frames leave, in which order, and in which chunks."""

from __future__ import annotations

import pytest

from tests.support.frames import (
    FRAME_OVERHEAD_BYTES,
    HEADER,
    body_frames,
    encode_frame,
    encode_header,
    method_frame,
)
from warren.amqp.methods import METHOD_ID, BasicAck, BasicDeliver
from warren.amqp.properties import BasicProperties
from warren.amqp.writer import Output

PROPERTIES = BasicProperties(delivery_mode=2)
TURN_BYTES = 1 << 20
COPIED_BYTES_MAX = 1 << 13


class Marked:
    def flush(self) -> None:
        """Never called here."""


def make_output(frame_max: int = 4096) -> Output:
    output = Output([], Marked())
    output.frame_max = frame_max
    return output


def taken(output: Output) -> bytes:
    return b"".join(output.take())


def content(body: bytes, *pieces: int) -> bytes:
    """Header and body frames on channel 3, the body in pieces of these sizes."""
    return encode_frame(HEADER, 3, encode_header(len(body), PROPERTIES)) + body_frames(3, body, pieces)


def test_heartbeat_is_the_frame_of_the_specification() -> None:
    output = make_output()
    output.heartbeat()
    assert taken(output) == b"\x08\0\0\0\0\0\0\xce"


def test_confirm_is_a_basic_ack() -> None:
    output = make_output()
    output.confirm(3, 2**40, multiple=True)
    assert taken(output) == method_frame(3, BasicAck(delivery_tag=2**40, multiple=True))


@pytest.mark.parametrize("redelivered", [True, False])
def test_delivery_is_a_basic_deliver_with_header_and_body(redelivered: bool) -> None:
    output = make_output()
    prefix = METHOD_ID.pack(*BasicDeliver.id) + b"\x03tag"
    output.deliver(3, prefix, 7, redelivered, b"\x01e", b"\x02rk", PROPERTIES.encode(), b"body")
    method = BasicDeliver(
        consumer_tag="tag", delivery_tag=7, redelivered=redelivered, exchange="e", routing_key="rk"
    )
    assert taken(output) == method_frame(3, method) + content(b"body", 4)


@pytest.mark.parametrize(
    ("frame_max", "size", "pieces"),
    [
        (4096, 0, []),
        (4096, 1, [1]),
        (4096, 4088, [4088]),
        (4096, 4089, [4088, 1]),
        (4096, 8176, [4088, 4088]),
        (4096, 20_000, [4088] * 4 + [3648]),
        (131_072, COPIED_BYTES_MAX, [COPIED_BYTES_MAX]),
        (131_072, COPIED_BYTES_MAX + 1, [COPIED_BYTES_MAX + 1]),
        (131_072, 131_064, [131_064]),
        (131_072, 131_065, [131_064, 1]),
    ],
)
def test_body_is_cut_at_frame_max_less_the_frames_own_octets(
    frame_max: int, size: int, pieces: list[int]
) -> None:
    output = make_output(frame_max)
    body = bytes(range(256)) * (size // 256 + 1)
    output.content(3, PROPERTIES.encode(), body[:size])
    frames = taken(output)
    assert frames == content(body[:size], *pieces)
    assert all(8 + piece <= frame_max for piece in pieces)


def test_everything_leaves_in_the_order_it_was_written() -> None:
    output = make_output(131_072)
    expected = b""
    for number in range(300):
        body = bytes([number % 256]) * (number * 97 % 30_000)
        output.method(3, BasicAck(delivery_tag=number).encode())
        output.content(3, PROPERTIES.encode(), body)
        expected += method_frame(3, BasicAck(delivery_tag=number))
        expected += content(body, *([len(body)] if body else []))
    assert output.pending_bytes == len(expected)
    assert taken(output) == expected


def test_large_body_goes_out_uncopied() -> None:
    output = make_output(131_072)
    body = b"x" * 100_000
    output.content(3, PROPERTIES.encode(), body)
    assert any(chunk is body for chunk in output.take())


def test_taking_empties_it() -> None:
    output = make_output()
    output.content(3, PROPERTIES.encode(), b"x" * 50_000)
    output.heartbeat()
    output.take()
    assert output.pending_bytes == 0
    assert output.take() == []
    output.heartbeat()
    assert taken(output) == b"\x08\0\0\0\0\0\0\xce"


def test_what_was_taken_stays_as_it_was_when_more_is_written() -> None:
    output = make_output()
    output.heartbeat()
    chunks = output.take()
    output.confirm(1, 1, multiple=False)
    assert b"".join(chunks) == b"\x08\0\0\0\0\0\0\xce"


def test_it_is_marked_as_dirty_once_until_it_is_taken() -> None:
    dirty: list[Output] = []
    output = Output(dirty, Marked())
    output.heartbeat()
    output.confirm(1, 1, multiple=False)
    output.content(1, b"\0\0", b"x" * 50_000)
    assert dirty == [output]
    output.take()
    output.heartbeat()
    assert dirty == [output, output]


def test_closed_output_is_not_marked_any_more() -> None:
    dirty: list[Output] = []
    output = Output(dirty, Marked())
    output.closed = True
    output.heartbeat()
    assert dirty == []


def test_there_is_room_until_the_turns_share_is_used_and_again_when_taken() -> None:
    output = make_output(131_072)
    overhead = FRAME_OVERHEAD_BYTES
    output.method(1, b"x" * (TURN_BYTES - 2 * overhead - 1))
    assert output.has_room()
    assert not output.starved
    output.method(1, b"x")
    assert not output.has_room()
    assert output.starved
    output.take()
    assert output.has_room()


def test_turns_share_can_be_made_smaller_and_never_larger() -> None:
    output = make_output()
    output.limit_turn(100)
    output.method(1, bytes(100 - FRAME_OVERHEAD_BYTES - 1))
    assert output.has_room()
    output.heartbeat()
    assert not output.has_room()
    output.limit_turn(0)
    assert output.has_room()
    output.limit_turn(2 * TURN_BYTES)
    output.content(1, b"\0\0", bytes(TURN_BYTES))
    assert not output.has_room()


def test_large_bodies_count_towards_the_turns_share() -> None:
    output = make_output(131_072)
    output.content(1, b"\0\0", b"x" * TURN_BYTES)
    assert not output.has_room()


def test_congested_output_has_no_room() -> None:
    output = make_output()
    output.congested = True
    assert not output.has_room()
    assert output.starved
