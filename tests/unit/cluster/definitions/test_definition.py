"""Definitions as keys and values of etcd."""

from __future__ import annotations

import pytest

from warren.broker.access import Permissions, TopicPermissions
from warren.broker.commands import (
    AddVhost,
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    PauseQueue,
    PutPolicy,
    SetGlobalParameter,
    SetParameter,
    SetPermissions,
    SetTopicPermissions,
    SetUserLimits,
    SetVhostLimits,
)
from warren.cluster.definitions.definition import (
    PLACES_MAX,
    Definition,
    Home,
    path_of,
    queue_number,
    read_definition,
    says_the_same,
)
from warren.storage.definition_keys import key_of

BINDING = Bind(vhost="/", source="amq.topic", destination="a/b", to_queue=True, routing_key="#.x")
PATHS: list[tuple[Command, str]] = [
    (AddVhost(name="/"), "vhost/%2F"),
    (SetVhostLimits(vhost="/"), "vhost-limits/%2F"),
    (SetUserLimits(user="ann"), "user-limits/ann"),
    (SetPermissions(user="ann", vhost="/", permissions=Permissions("", "", "")), "permissions/ann/%2F"),
    (
        SetTopicPermissions(user="ann", vhost="/", exchange="", permissions=TopicPermissions("", "")),
        "topic-permissions/ann/%2F/",
    ),
    (PutPolicy(vhost="v", name="p", pattern="", definition={}, operator=True), "policy/v/p/1"),
    (SetParameter(vhost="v", component="shovel", name="s", value={}), "parameter/v/shovel/s"),
    (SetGlobalParameter(name="cluster_name", value="x"), "global-parameter/cluster_name"),
    (DeclareExchange(vhost="v", name="e 1", type="direct"), "exchange/v/e%201"),
    (DeclareQueue(vhost="v", name="ü"), "queue/v/%C3%BC"),
    (DeclareQueue(vhost="v", name="\udcff"), "queue/v/%FF"),
    (PauseQueue(vhost="v", name="q"), "pause/v/q"),
    (BINDING, "binding/%2F/amq.topic/1/a%2Fb/#.x/-"),
]


@pytest.mark.parametrize(("command", "path"), PATHS, ids=[path for _, path in PATHS])
def test_the_key_of_a_definition_is_for_ever(command: Command, path: str) -> None:
    """Other versions find it by that."""
    assert path_of(key_of(command)) == path


def test_bindings_with_other_arguments_have_other_keys() -> None:
    binding = Bind(vhost="/", source="e", destination="q", to_queue=True, arguments={"x": 1})
    other = Bind(vhost="/", source="e", destination="q", to_queue=True, arguments={"x": True})
    assert path_of(key_of(binding)) != path_of(key_of(other))
    assert len(path_of(key_of(binding))) < 100


def test_the_value_of_a_definition_is_for_ever() -> None:
    definition = Definition(
        command=DeclareQueue(vhost="/", name="q", durable=True),
        on=(5,),
        place=3,
        home=Home("a", "run", 7),
        shard=12,
    )
    text = (
        b'{"declare_queue":{"vhost":"/","name":"q","durable":true},"on":[5],"place":3,'
        b'"home":{"node":"a","run":"run","client":7},"shard":12}'
    )
    assert definition.text() == text
    assert read_definition(text) == definition


@pytest.mark.parametrize("command", [command for command, _ in PATHS])
def test_a_definition_is_read_as_it_was_written(command: Command) -> None:
    definition = Definition(command=command, on=(1, 2), home=Home("a"))
    assert read_definition(definition.text()) == definition


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"unknown": {}}', b'{"add_vhost": {"name": "/"}, "on": 5}', b'{"add_vhost": {}}'],
)
def test_what_is_no_definition_is_told(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_definition(text)


def test_numbers_of_queues_are_never_the_same() -> None:
    made = [queue_number(revision, place) for revision in (2, 3, 4) for place in range(PLACES_MAX)]
    assert len(set(made)) == len(made)


def test_commands_with_values_of_other_types_do_not_say_the_same() -> None:
    one = DeclareQueue(vhost="/", name="q", arguments={"x-max-length": 1})
    other = DeclareQueue(vhost="/", name="q", arguments={"x-max-length": True})
    assert one == other
    assert not says_the_same(one, other)
