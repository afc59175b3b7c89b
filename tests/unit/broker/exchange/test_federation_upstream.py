from __future__ import annotations

import pytest

from tests.unit.broker.exchange.routing import bind, routed
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, Value
from warren.broker.exchange.federation_upstream import FederationUpstream

ARGUMENTS: Table = {"x-max-hops": 2, "x-downstream-name": "down", "x-downstream-vhost": "v"}


def received_from(*stations: Value) -> BasicProperties:
    return BasicProperties(headers={"x-received-from": list(stations)})


def test_every_binding_gets_messages_that_were_never_federated() -> None:
    router = FederationUpstream(ARGUMENTS)
    bind(router, "a", "k")
    gone = bind(router, "b")
    assert routed(router, "other") == ["a", "b"]
    router.unbind(gone)
    assert routed(router, "k", BasicProperties(headers={"x-received-from": "a client's"})) == ["a"]


@pytest.mark.parametrize(
    ("stations", "goes_on"),
    [
        ([{"cluster-name": "other", "vhost": "v"}], True),
        ([{"cluster-name": "down", "vhost": "w"}], True),
        ([{"cluster-name": "down", "vhost": "v"}], False),
        ([{"cluster-name": "other", "vhost": "v"}, {"cluster-name": "third", "vhost": "v"}], False),
        (["nonsense"], True),
    ],
)
def test_message_goes_on_unless_it_came_too_far_or_was_there_before(
    stations: list[Value], goes_on: bool
) -> None:
    router = FederationUpstream(ARGUMENTS)
    bind(router, "a")
    assert routed(router, "k", received_from(*stations)) == (["a"] if goes_on else [])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "Argument x-max-hops missing"),
        ({"x-max-hops": "2"}, "Argument x-max-hops must be of type long"),
        ({"x-max-hops": True}, "Argument x-max-hops must be of type long"),
    ],
)
def test_it_cannot_be_declared_without_a_limit(arguments: Table, reason: str) -> None:
    with pytest.raises(PreconditionFailed, match=reason):
        FederationUpstream(arguments)
