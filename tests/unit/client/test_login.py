"""What clients answer to a broker's greeting, by their URI."""

from __future__ import annotations

import pytest

from warren.amqp.methods import ConnectionTune
from warren.client.errors import ClientError
from warren.client.frames import FRAME_MAX
from warren.client.login import credentials, tuned
from warren.client.uri import parse_uri
from warren.session.sasl import MECHANISMS


@pytest.mark.parametrize(
    ("query", "offered", "mechanism"),
    [
        ("", b"PLAIN AMQPLAIN EXTERNAL", "PLAIN"),
        ("", b"AMQPLAIN", "AMQPLAIN"),
        ("?auth_mechanism=amqplain", b"PLAIN AMQPLAIN", "AMQPLAIN"),
        ("?auth_mechanism=external&auth_mechanism=plain", b"PLAIN", "PLAIN"),
    ],
)
def test_first_mechanism_that_the_broker_has_is_taken(query: str, offered: bytes, mechanism: str) -> None:
    chosen, response = credentials(parse_uri(f"amqp://me:secret@b{query}"), offered)
    assert chosen == mechanism
    assert MECHANISMS[chosen](response) == ("me", b"secret")


def test_certificate_speaks_for_itself() -> None:
    assert credentials(parse_uri("amqps://b?auth_mechanism=external"), b"PLAIN EXTERNAL") == ("EXTERNAL", b"")


@pytest.mark.parametrize(
    ("uri", "offered", "reason"),
    [
        ("amqp://b", b"EXTERNAL", "lets nobody log in by PLAIN or AMQPLAIN"),
        ("amqp://b?auth_mechanism=external", b"PLAIN", "lets nobody log in by EXTERNAL"),
    ],
)
def test_broker_without_a_mechanism_is_an_error(uri: str, offered: bytes, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        credentials(parse_uri(uri), offered)


@pytest.mark.parametrize(
    ("query", "tune", "channels", "frame"),
    [
        ("", ConnectionTune(channel_max=0, frame_max=0, heartbeat=60), 0, FRAME_MAX),
        ("", ConnectionTune(channel_max=2047, frame_max=4096, heartbeat=60), 2047, 4096),
        ("?channel_max=5", ConnectionTune(channel_max=0, frame_max=0, heartbeat=60), 5, FRAME_MAX),
        (
            "?channel_max=5&frame_max=8192",
            ConnectionTune(channel_max=3, frame_max=131072, heartbeat=60),
            3,
            8192,
        ),
    ],
)
def test_lowest_limit_is_agreed_on(query: str, tune: ConnectionTune, channels: int, frame: int) -> None:
    agreed = tuned(parse_uri(f"amqp://b{query}"), tune, heartbeat_seconds=7)
    assert (agreed.channel_max, agreed.frame_max, agreed.heartbeat) == (channels, frame, 7)
