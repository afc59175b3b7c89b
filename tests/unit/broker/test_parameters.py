"""Parameters that components keep in the broker, and the metadata of vhosts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from warren.amqp.errors import NotFound, PreconditionFailed
from warren.amqp.table import Table
from warren.broker import commands as c
from warren.broker.events import (
    Event,
    GlobalParameterCleared,
    GlobalParameterSet,
    ParameterCleared,
    ParameterSet,
)
from warren.broker.node import Node
from warren.broker.parameters import Json
from warren.broker.vhost_metadata import VhostMetadata


@pytest.fixture
def node() -> Node:
    return make_node(FakeWorld())


def set_parameter(value: Json, vhost: str = "/") -> c.SetParameter:
    return c.SetParameter(vhost=vhost, component="shovel", name="s", value=value)


def test_parameter_is_set_changed_and_cleared(node: Node) -> None:
    seen: list[Event] = []
    node.events.subscribe(ParameterSet, seen.append)
    node.events.subscribe(ParameterCleared, seen.append)
    values: list[Json] = [{"a": 1}, {"a": 1}, {"a": True}]
    for value in values:
        node.execute(set_parameter(value))
        assert node.parameters.find("shovel", "/", "s") == value
    assert seen == 2 * [ParameterSet("/", "shovel", "s")], "true is another value than 1"
    node.execute(c.ClearParameter(vhost="/", component="shovel", name="s"))
    assert node.parameters.of_vhost("/") == {}
    assert seen[2:] == [ParameterCleared("/", "shovel", "s")]


def test_parameter_of_no_vhost_is_not_found(node: Node) -> None:
    with pytest.raises(NotFound):
        node.execute(set_parameter(1, vhost="absent"))


def test_component_checks_its_own_parameters(node: Node) -> None:
    def check(vhost: str, name: str, value: Json) -> None:
        if value != {"ok": True}:
            raise PreconditionFailed(f"{vhost}{name}: not ok")

    node.parameters.register("shovel", check)
    node.execute(set_parameter({"ok": True}))
    node.execute(c.SetParameter(vhost="/", component="other", name="s", value=5))
    with pytest.raises(PreconditionFailed, match="/s: not ok"):
        node.execute(set_parameter(5))
    assert node.parameters.find("shovel", "/", "s") == {"ok": True}


def test_global_parameter_is_set_changed_and_cleared(node: Node) -> None:
    seen: list[Event] = []
    node.events.subscribe(GlobalParameterSet, seen.append)
    node.events.subscribe(GlobalParameterCleared, seen.append)
    for value in (1, 1, 2):
        node.execute(c.SetGlobalParameter(name="g", value=value))
    node.execute(c.ClearGlobalParameter(name="g"))
    assert seen == [*2 * [GlobalParameterSet("g")], GlobalParameterCleared("g")]
    assert node.parameters.of_node == {}


def test_cluster_is_renamed_by_its_parameter(node: Node) -> None:
    node.execute(c.SetGlobalParameter(name="cluster_name", value="other"))
    assert node.cluster_name == "other"
    for value in ("", 5):
        with pytest.raises(PreconditionFailed):
            node.execute(c.SetGlobalParameter(name="cluster_name", value=value))
    with pytest.raises(PreconditionFailed):
        node.execute(c.ClearGlobalParameter(name="cluster_name"))
    assert node.cluster_name == "other"


# --- the default type of queues ---


def default_type(node: Node, kind: str | None) -> None:
    metadata = VhostMetadata("", frozenset(), kind)
    node.execute(c.SetVhostMetadata(vhost="/", metadata=metadata))


@pytest.mark.parametrize(
    ("flags", "arguments", "expected"),
    [
        ({"durable": True}, {}, {"x-queue-type": "quorum"}),
        ({"durable": True}, {"x-queue-type": "classic"}, {"x-queue-type": "classic"}),
        ({"durable": False}, {}, {}),
        ({"durable": True, "auto_delete": True}, {}, {}),
        ({"durable": True, "by_broker": True}, {}, {}),
    ],
)
def test_queue_gets_the_default_type_if_it_can_have_it(
    node: Node, flags: dict[str, Any], arguments: Table, expected: Table
) -> None:
    default_type(node, "quorum")
    node.execute(c.DeclareQueue(vhost="/", name="q", arguments=arguments, **flags))
    assert node.vhosts["/"].queues["q"].arguments == expected


def test_client_declares_queues_of_the_default_type(node: Node) -> None:
    default_type(node, "quorum")
    client = FakeClient(node).open()
    client.declare("durable", durable=True)
    client.declare("durable", durable=True)
    client.declare("mine", durable=True, exclusive=True)
    queues = node.vhosts["/"].queues
    assert queues["durable"].arguments == {"x-queue-type": "quorum"}
    assert queues["mine"].arguments == {}


def test_queues_that_are_there_keep_their_type_over_a_restart() -> None:
    node, later = make_node(FakeWorld()), make_node(FakeWorld())
    declared = c.DeclareQueue(vhost="/", name="q", durable=True)
    metadata = c.SetVhostMetadata(vhost="/", metadata=VhostMetadata("", frozenset(), "quorum"))
    node.execute(declared)
    later.restore([metadata, declared])
    assert node.vhosts["/"].queues["q"].arguments == later.vhosts["/"].queues["q"].arguments == {}


def test_default_type_that_does_not_exist_is_refused(node: Node) -> None:
    with pytest.raises(PreconditionFailed, match="'odd' is none of classic, quorum, stream"):
        default_type(node, "odd")
    with pytest.raises(NotFound):
        node.execute(c.SetVhostMetadata(vhost="absent", metadata=VhostMetadata()))
