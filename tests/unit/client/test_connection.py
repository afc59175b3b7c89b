"""The client's blocking connection, against a real broker."""

from __future__ import annotations

import uuid

import pytest

from tests.support.process import Address
from warren.amqp.methods import (
    BasicGet,
    BasicGetEmpty,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from warren.client.connection import ClientConnection
from warren.client.dialogue import Dialogue, ask
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.client.uri import parse_uri


def test_dialogue_is_carried_on_to_its_end_and_gives_what_it_gives(broker: Address) -> None:
    name = f"connection-{uuid.uuid4()}"

    def talk() -> Dialogue[str]:
        declared = yield from ask(QueueDeclare(queue=name, arguments={}), QueueDeclareOk)
        yield from ask(QueueDelete(queue=name), QueueDeleteOk)
        return declared.queue

    with ClientConnection(parse_uri(broker.url()), product="test") as connection:
        assert connection.talk(talk()) == name


def test_channel_that_the_broker_closes_is_an_error_that_says_why(broker: Address) -> None:
    with (
        pytest.raises(ClosedByBrokerError, match="closed the channel: 404 NOT_FOUND") as caught,
        ClientConnection(parse_uri(broker.url()), product="test") as connection,
    ):
        connection.talk(ask(BasicGet(queue="missing"), BasicGetEmpty))
    assert caught.value.code == 404


def test_answer_that_nobody_asked_for_is_an_error(broker: Address) -> None:
    name = f"connection-{uuid.uuid4()}"
    declare = QueueDeclare(queue=name, exclusive=True, arguments={})
    with (
        pytest.raises(ClientError, match=r"sent queue\.declare-ok when nothing like it was due"),
        ClientConnection(parse_uri(broker.url()), product="test") as connection,
    ):
        connection.talk(ask(declare, QueueDeleteOk))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cacertfile=absent.pem", "cannot read certificates in absent.pem: No such file"),
        (
            "certfile=absent.pem&keyfile=absent.key",
            "cannot read certificate and key in absent.pem and absent.key: No such file",
        ),
    ],
)
def test_file_that_is_not_there_is_named(broker: Address, query: str, text: str) -> None:
    uri = parse_uri(f"amqps://127.0.0.1:{broker.port}?{query}")
    with pytest.raises(ClientError, match=text):
        ClientConnection(uri, product="test")
