from __future__ import annotations

import pytest

from tests.support.frames import BODY, HEADER, encode_frame, method_frame
from warren.amqp.methods import BasicPublish
from warren.perf.frames import publish_frames

PUBLISH = BasicPublish(exchange="e", routing_key="k")


def test_a_publish_is_method_header_and_body() -> None:
    message = publish_frames(PUBLISH, body_bytes=10, persistent=False, frame_max=4096)
    header = b"\0\x3c\0\0" + (10).to_bytes(8, "big") + b"\0\0"
    assert message.data == method_frame(1, PUBLISH) + encode_frame(HEADER, 1, header) + encode_frame(
        BODY, 1, bytes(10)
    )


def test_a_persistent_publish_has_delivery_mode_2() -> None:
    message = publish_frames(PUBLISH, body_bytes=0, persistent=True, frame_max=4096)
    assert message.data == method_frame(1, PUBLISH) + encode_frame(
        HEADER, 1, b"\0\x3c" + bytes(10) + b"\x10\0\x02"
    )


def test_a_large_body_is_cut_at_the_agreed_frame_size() -> None:
    message = publish_frames(PUBLISH, body_bytes=5000, persistent=False, frame_max=4096)
    assert message.data.endswith(encode_frame(BODY, 1, bytes(4088)) + encode_frame(BODY, 1, bytes(912)))


@pytest.mark.parametrize("size", [8, 16, 5000])
def test_the_stamp_goes_to_the_start_of_the_body(size: int) -> None:
    message = publish_frames(PUBLISH, body_bytes=size, persistent=False, frame_max=4096)
    first = encode_frame(BODY, 1, bytes(min(size, 4088)))
    assert message.stamp_at == message.data.index(first) + 7


def test_a_short_body_has_no_room_for_a_stamp() -> None:
    assert publish_frames(PUBLISH, body_bytes=7, persistent=False, frame_max=4096).stamp_at is None
