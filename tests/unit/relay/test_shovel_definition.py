"""Definitions of shovels, with RabbitMQ's keys: what is right, and what is refused, with a reason."""

from __future__ import annotations

import pytest

from warren.amqp.errors import PreconditionFailed
from warren.broker.parameters import Json
from warren.relay.shovel_definition import NEVER, NotSpoken, read_shovel

LEAST: dict[str, Json] = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://there"}


def test_what_is_not_given_is_as_in_rabbitmq() -> None:
    shovel = read_shovel("s", LEAST)
    assert (shovel.ack_mode, shovel.prefetch_count, shovel.delete_after) == ("on-confirm", 1000, NEVER)
    assert shovel.reconnect_seconds == 5
    assert (shovel.destination_queue, shovel.destination_exchange, shovel.destination_key) == ("", None, None)
    assert shovel.source[0].is_here
    assert not shovel.destination[0].is_here


def test_old_names_of_keys_are_still_taken() -> None:
    shovel = read_shovel(
        "s", LEAST | {"prefetch-count": 7, "delete-after": "queue-length", "add-forward-headers": True}
    )
    assert (shovel.prefetch_count, shovel.delete_after, shovel.add_forward_headers) == (
        7,
        "queue-length",
        True,
    )


@pytest.mark.parametrize(
    ("uri", "vhost"),
    [("amqp://", "/"), ("amqp:///", "/"), ("amqp:///other", "other"), ("amqp://h", "/")],
)
def test_uri_without_a_vhost_means_the_usual_one_as_in_rabbitmq(uri: str, vhost: str) -> None:
    assert read_shovel("s", LEAST | {"src-uri": uri}).source[0].uri.vhost == vhost


def test_an_end_is_shown_without_its_password() -> None:
    shovel = read_shovel("s", LEAST | {"dest-uri": "amqps://me:secret@there:1234/v%2Fh?verify=verify_none"})
    assert shovel.destination[0].shown == "amqps://there:1234/v%2Fh"


WRONG: list[tuple[Json, str]] = [
    ("text", "expected an object"),
    (LEAST | {"src-exchange": "e"}, "src-queue or src-exchange has to be given, and not both"),
    ({"src-uri": "amqp://", "dest-uri": "amqp://"}, "src-queue or src-exchange has to be given"),
    ({"src-queue": "q", "dest-uri": "amqp://"}, "src-uri should be an AMQP URI"),
    (LEAST | {"src-uri": []}, "src-uri should be an AMQP URI"),
    (LEAST | {"src-uri": ["amqp://", 5]}, "src-uri should be an AMQP URI"),
    (LEAST | {"src-uri": "http://there"}, "src-uri is wrong: not an amqp:// URI"),
    (LEAST | {"src-uri": "amqp://me:sec/ret@there"}, "src-uri is wrong"),
    (LEAST | {"dest-queue": "a", "dest-exchange": "b"}, "dest-queue and dest-exchange cannot be given both"),
    (LEAST | {"ack-mode": "sometimes"}, "ack-mode should be one of on-confirm, on-publish, no-ack"),
    (LEAST | {"src-prefetch-count": -1}, "src-prefetch-count should be a number from 0 to 65535"),
    (LEAST | {"src-prefetch-count": True}, "src-prefetch-count should be a number"),
    (LEAST | {"src-delete-after": "tomorrow"}, "src-delete-after should be never, queue-length, or a number"),
    (LEAST | {"src-delete-after": -1}, "src-delete-after should be"),
    (LEAST | {"src-delete-after": 5, "ack-mode": "no-ack"}, "cannot be used with ack-mode no-ack"),
    (LEAST | {"reconnect-delay": "5"}, "reconnect-delay should be a number"),
    (LEAST | {"dest-add-forward-headers": 1}, "dest-add-forward-headers should be true or false"),
    (LEAST | {"src-queue": 5}, "src-queue should be a text"),
    (LEAST | {"dest-publish-properties": {"colour": "red"}}, "cannot set colour"),
    (LEAST | {"dest-publish-properties": {"delivery_mode": "2"}}, "cannot set delivery_mode"),
    (LEAST | {"dest-publish-properties": {"priority": 300}}, "cannot be sent"),
    (LEAST | {"src-protocol": 5}, "src-protocol should be a text"),
    (LEAST | {"src-predeclared": "yes"}, "src-predeclared should be true or false"),
    (LEAST | {"src-uri": "amqp://h?heartbeat=often"}, "src-uri is wrong: heartbeat should be a whole number"),
    (LEAST | {"dest-publish-properties": {"x": "amqp://me:sec/ret@b"}}, "cannot set x to 'amqp://me:***@b'"),
    (LEAST | {"src-que": "q"}, "src-que is not known"),
]


@pytest.mark.parametrize(("value", "reason"), WRONG)
def test_what_makes_no_sense_is_refused_with_a_reason(value: Json, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        read_shovel("s", value)
    assert f"shovel 's': {reason}" in refused.value.text or reason in refused.value.text
    assert "sec/ret" not in refused.value.text


@pytest.mark.parametrize(
    ("key", "protocol", "shown"),
    [
        ("src-protocol", "amqp10", "AMQP 1.0"),
        ("dest-protocol", "amqp10", "AMQP 1.0"),
        ("src-protocol", "local", "'local'"),
    ],
)
def test_protocols_that_are_not_spoken_are_told_from_mistakes(key: str, protocol: str, shown: str) -> None:
    value: Json = {"src-uri": "amqp://", "src-address": "q", "dest-uri": "amqp://", key: protocol}
    with pytest.raises(NotSpoken) as refused:
        read_shovel("s", value)
    assert refused.value.text == f"shovel 's': {key} is {shown}, which is not spoken here"
