from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, get_args

import pytest

from warren.amqp import table as t
from warren.amqp.table import DOUBLE, Table
from warren.broker import commands as c
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.client import ClientId
from warren.broker.commands import Command
from warren.broker.passwords import PasswordHash
from warren.broker.vhost_metadata import VhostMetadata
from warren.storage.command_text import command_from_json, command_to_json

HASH = PasswordHash("rabbit_password_hashing_sha256", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
WRITTEN: list[tuple[Command, str]] = [
    (c.AddVhost(name="/"), '{"add_vhost": {"name": "/"}}'),
    (c.DeleteVhost(name="/"), '{"delete_vhost": {"name": "/"}}'),
    (
        c.SetVhostMetadata(vhost="/", metadata=VhostMetadata("d", frozenset({"b", "a"}), "quorum")),
        (
            '{"set_vhost_metadata": {"vhost": "/", "metadata": '
            '{"description": "d", "tags": ["a", "b"], "default_queue_type": "quorum"}}}'
        ),
    ),
    (
        c.SetParameter(vhost="/", component="shovel", name="s", value={"!int16": [1, 1.5, None, True]}),
        (
            '{"set_parameter": {"vhost": "/", "component": "shovel", "name": "s", '
            '"value": {"!int16": [1, 1.5, null, true]}}}'
        ),
    ),
    (
        c.ClearParameter(vhost="/", component="shovel", name="s"),
        '{"clear_parameter": {"vhost": "/", "component": "shovel", "name": "s"}}',
    ),
    (c.SetGlobalParameter(name="g", value=False), '{"set_global_parameter": {"name": "g", "value": false}}'),
    (c.ClearGlobalParameter(name="g"), '{"clear_global_parameter": {"name": "g"}}'),
    (c.ClearPermissions(user="u", vhost="/"), '{"clear_permissions": {"user": "u", "vhost": "/"}}'),
    (
        c.ClearTopicPermissions(user="u", vhost="/", exchange="e"),
        '{"clear_topic_permissions": {"user": "u", "vhost": "/", "exchange": "e"}}',
    ),
    (
        c.PutUser(name="u", password=HASH, tags=frozenset({"monitoring", "administrator"})),
        (
            '{"put_user": {"name": "u", "password": {"algorithm": "rabbit_password_hashing_sha256", '
            '"value": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"}, '
            '"tags": ["administrator", "monitoring"]}}'
        ),
    ),
    (c.PutUser(name="u", password=None), '{"put_user": {"name": "u", "password": null}}'),
    (c.DeleteUser(name="u"), '{"delete_user": {"name": "u"}}'),
    (
        c.SetUserLimits(user="u", max_connections=0, max_publish_rate=1000),
        '{"set_user_limits": {"user": "u", "max_connections": 0, "max_publish_rate": 1000}}',
    ),
    (c.SetUserLimits(user="u"), '{"set_user_limits": {"user": "u"}}'),
    (
        c.SetVhostLimits(vhost="/", max_connections=-1, max_queues=5),
        '{"set_vhost_limits": {"vhost": "/", "max_connections": -1, "max_queues": 5}}',
    ),
    (
        c.PutPolicy(vhost="/", name="p", pattern="^q", definition={"max-length": 5, "ha-params": ["a"]}),
        (
            '{"put_policy": {"vhost": "/", "name": "p", "pattern": "^q", '
            '"definition": {"max-length": 5, "ha-params": ["a"]}}}'
        ),
    ),
    (
        c.PutPolicy(
            vhost="/",
            name="p",
            pattern="",
            definition={"expires": 5},
            priority=-1,
            apply_to="queues",
            operator=True,
        ),
        (
            '{"put_policy": {"vhost": "/", "name": "p", "pattern": "", "definition": {"expires": 5}, '
            '"priority": -1, "apply_to": "queues", "operator": true}}'
        ),
    ),
    (
        c.DeletePolicy(vhost="/", name="p", operator=True),
        '{"delete_policy": {"vhost": "/", "name": "p", "operator": true}}',
    ),
    (
        c.SetPermissions(user="u", vhost="/", permissions=Permissions(write="^a")),
        (
            '{"set_permissions": {"user": "u", "vhost": "/", '
            '"permissions": {"configure": "", "write": "^a", "read": ""}}}'
        ),
    ),
    (
        c.SetTopicPermissions(user="u", vhost="/", exchange="e", permissions=TopicPermissions(read="^a")),
        (
            '{"set_topic_permissions": {"user": "u", "vhost": "/", "exchange": "e", '
            '"permissions": {"write": ".*", "read": "^a"}}}'
        ),
    ),
    (
        c.DeclareExchange(vhost="/", name="e", type="topic", durable=False, internal=True),
        (
            '{"declare_exchange": {"vhost": "/", "name": "e", "type": "topic", "durable": false, '
            '"internal": true}}'
        ),
    ),
    (
        c.DeclareExchange(vhost="/", name="e", type="topic", auto_delete=True),
        '{"declare_exchange": {"vhost": "/", "name": "e", "type": "topic", "auto_delete": true}}',
    ),
    (c.DeleteExchange(vhost="/", name="e"), '{"delete_exchange": {"vhost": "/", "name": "e"}}'),
    (
        c.DeclareQueue(vhost="/", name="orders", durable=True, arguments={"x-max-length": 5}),
        (
            '{"declare_queue": {"vhost": "/", "name": "orders", "durable": true, '
            '"arguments": {"x-max-length": 5}}}'
        ),
    ),
    (c.DeleteQueue(vhost="/", name="orders"), '{"delete_queue": {"vhost": "/", "name": "orders"}}'),
    (c.PauseQueue(vhost="/", name="orders"), '{"pause_queue": {"vhost": "/", "name": "orders"}}'),
    (c.ResumeQueue(vhost="/", name="orders"), '{"resume_queue": {"vhost": "/", "name": "orders"}}'),
    (
        c.Bind(vhost="/", source="e", destination="q", to_queue=True, routing_key="k"),
        '{"bind": {"vhost": "/", "source": "e", "destination": "q", "to_queue": true, "routing_key": "k"}}',
    ),
    (
        c.Unbind(vhost="/", source="e", destination="f", to_queue=False, arguments={"a": None}),
        (
            '{"unbind": {"vhost": "/", "source": "e", "destination": "f", "to_queue": false, '
            '"arguments": {"a": null}}}'
        ),
    ),
]


def exact(value: Any) -> object:
    """In a form that is equal only if every type and bit is."""
    if isinstance(value, dict):
        return [(name, exact(item)) for name, item in value.items()]
    if isinstance(value, list):
        return (list, [exact(item) for item in value])
    content = DOUBLE.pack(value) if isinstance(value, float) else str(value)
    return (type(value), content)


def there_and_back(arguments: Table) -> Table:
    command = c.DeclareQueue(vhost="/", name="q", arguments=arguments)
    read = command_from_json(json.loads(json.dumps(command_to_json(command), allow_nan=False)))
    assert isinstance(read, c.DeclareQueue)
    return read.arguments


def test_every_command_has_an_example_here() -> None:
    assert {type(command) for command, _ in WRITTEN} == set(get_args(Command)) - c.NOT_KEPT


@pytest.mark.parametrize(("command", "text"), WRITTEN, ids=[text[:24] for _, text in WRITTEN])
def test_command_is_written_as_its_fields_and_read_back(command: Command, text: str) -> None:
    assert json.dumps(command_to_json(command)) == text
    assert command_from_json(json.loads(text)) == command


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            c.DeclareQueue(vhost="/", name="q", owner=ClientId(1), by_broker=True),
            {"declare_queue": {"vhost": "/", "name": "q"}},
        ),
        (
            c.DeleteQueue(vhost="/", name="q", if_unused=True, if_empty=True),
            {"delete_queue": {"vhost": "/", "name": "q"}},
        ),
        (
            c.DeleteExchange(vhost="/", name="x", if_unused=True),
            {"delete_exchange": {"vhost": "/", "name": "x"}},
        ),
    ],
)
def test_fields_of_the_moment_are_never_written(command: Command, text: object) -> None:
    assert command_to_json(command) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (t.Int16(-5), {"!int16": -5}),
        (t.OldInt64(7), {"!oldint64": 7}),
        (t.Timestamp(2**64 - 1), {"!timestamp": 2**64 - 1}),
        (t.Float32(1.5), {"!float32": 1.5}),
        (math.inf, {"!float": "7ff0000000000000"}),
        (b"\xff\x00", {"!bytes": "ff00"}),
        (bytearray(b"ab"), {"!bytearray": "6162"}),
        (Decimal("1.50"), {"!decimal": "1.50"}),
        ({"!odd": 1}, {"!table": {"!odd": 1}}),
        ({"!odd": 1, "x": 2}, {"!odd": 1, "x": 2}),
    ],
    ids=str,
)
def test_value_that_json_lacks_is_marked_with_its_type(value: t.Value, text: object) -> None:
    written = command_to_json(c.DeclareQueue(vhost="/", name="q", arguments={"a": value}))
    assert written == {"declare_queue": {"vhost": "/", "name": "q", "arguments": {"a": text}}}
    assert exact(there_and_back({"a": value})) == exact({"a": value})


@pytest.mark.parametrize("kind", t.SIZED.values(), ids=lambda kind: kind.__name__)
def test_sized_integers_keep_their_type(kind: type[t.Sized]) -> None:
    assert exact(there_and_back({"a": kind(100)})) == exact({"a": kind(100)})


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": True, "b": 1, "c": 1.0, "d": None, "e": "", "f": -0.0, "g": 2**63 - 1},
        {"nan": math.nan, "less": -math.inf, "single": t.Float32(math.nan)},
        {"odd nan": DOUBLE.unpack(bytes.fromhex("fff8000000000123"))[0]},
        {"\udcff": "not UTF-8: \udc80", "é": "\U0001f407\x00\n"},
        {"list": [[], {}, [t.UInt8(1), {"deep": [b"", bytearray()]}]], "table": {"a": {"b": {}}}},
        {"!alone": {"!alone": {"!table": {"!int16": 5}}}},
        {"!int16": 5},
        {"a": {"!int16": 5}, "b": [{"!table": 1}]},
    ],
    ids=[
        "plain",
        "not finite",
        "bits of nan",
        "characters",
        "nested",
        "marks",
        "mark on top",
        "marks within",
    ],
)
def test_table_comes_back_exactly(arguments: Table) -> None:
    assert exact(there_and_back(arguments)) == exact(arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({}, "one command"),
        ([1], "expected dict, found list"),
        (5, "expected dict, found int"),
        ({"add_vhost": {"name": "/"}, "delete_user": {"name": "u"}}, "one command"),
        ({"frobnicate": {}}, "unknown command 'frobnicate'"),
        ({"add_vhost": {"name": "/", "colour": "red"}}, "add_vhost: unknown field 'colour'"),
        ({"declare_queue": {"vhost": "/", "name": "q", "owner": None}}, "unknown field 'owner'"),
        ({"declare_queue": {"durable": True}}, "declare_queue: lacks name, vhost"),
        ({"add_vhost": {"name": 5}}, "add_vhost: name: expected str, found int"),
        ({"add_vhost": ["/"]}, "add_vhost: expected dict, found list"),
        ({"declare_queue": {"vhost": "/", "name": "q", "durable": 1}}, "durable: expected bool, found int"),
        ({"set_vhost_limits": {"vhost": "/", "max_queues": "5"}}, "max_queues: expected int, found str"),
        ({"put_policy": {"vhost": "/", "name": "p"}}, "put_policy: lacks definition, pattern"),
        ({"put_user": {"name": "u", "password": None, "tags": "x"}}, "tags: expected list, found str"),
        ({"put_user": {"name": "u", "password": {"algorithm": "rot13", "value": ""}}}, "rot13"),
        (
            {"put_user": {"name": "u", "password": {"algorithm": "scrypt", "value": "?"}}},
            "put_user: password",
        ),
        (
            {"set_permissions": {"user": "u", "vhost": "/", "permissions": {"read": "("}}},
            "regular expression",
        ),
    ],
)
def test_what_is_no_command_is_a_value_error_that_says_why(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        command_from_json(text)


@pytest.mark.parametrize(
    "value",
    [
        {"!int16": 70_000},
        {"!int16": "5"},
        {"!int16": True},
        {"!complex": 1},
        {"!bytes": "f"},
        {"!bytes": 5},
        {"!decimal": "one"},
        {"!float": "00"},
        {"!float32": None},
        {"!table": []},
    ],
    ids=str,
)
def test_value_that_its_type_cannot_have_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match="declare_queue: arguments: "):
        command_from_json({"declare_queue": {"vhost": "/", "name": "q", "arguments": {"a": value}}})
