from __future__ import annotations

import pytest

from tests.support.frames import BODY, HEADER, HEARTBEAT, METHOD, encode_frame
from warren.client.errors import ClientError
from warren.client.frames import FRAME_MAX
from warren.client.inbox import Inbox

FRAMES = [(METHOD, 1, b"method"), (HEADER, 1, b"header"), (BODY, 1, b"\xce" * 20), (HEARTBEAT, 0, b"")]
DATA = b"".join(encode_frame(*frame) for frame in FRAMES)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 13, len(DATA)])
def test_frames_are_the_same_however_they_arrive(size: int) -> None:
    inbox = Inbox()
    found = [frame for at in range(0, len(DATA), size) for frame in inbox.feed(DATA[at : at + size])]

    assert found == FRAMES


def test_incomplete_frame_waits_for_the_rest() -> None:
    inbox = Inbox()

    assert inbox.feed(DATA + DATA[:-1]) == FRAMES + FRAMES[:-1]
    assert inbox.feed(DATA[-1:]) == FRAMES[-1:]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 400 Bad Request", "does not speak AMQP"),
        (encode_frame(METHOD, 1, bytes(FRAME_MAX + 1)), "more than was agreed"),
        (encode_frame(METHOD, 1, b"x")[:-1] + b"\0", "end octet"),
    ],
)
def test_what_is_no_frame_is_an_error(data: bytes, text: str) -> None:
    with pytest.raises(ClientError, match=text):
        Inbox().feed(data)
