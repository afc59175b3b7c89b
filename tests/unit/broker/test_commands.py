from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import EXCHANGE_TYPES, FakeWorld, make_node, quick_hash
from warren.amqp.errors import AmqpError, NotFound
from warren.amqp.methods import ConnectionClose
from warren.amqp.table import Table
from warren.broker import commands as c
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.commands import Command
from warren.broker.node import Limits, Node
from warren.broker.vhost_metadata import VhostMetadata

SEED = 20_240_229
DELAYED: Table = {"x-delayed-type": "topic"}


def topology(node: Node) -> dict[str, object]:
    """Everything that commands have made, as plain values."""
    return {
        "users": {
            user.name: (
                user.password,
                user.tags,
                dict(user.permissions),
                dict(user.topic_permissions),
                user.limits,
            )
            for user in node.users.values()
        },
        "vhosts": {vhost.name: (vhost.limits, vhost.metadata) for vhost in node.vhosts.values()},
        "parameters": [
            (vhost, *key, value)
            for vhost, values in node.parameters.of_vhosts.items()
            for key, value in values.items()
        ],
        "global parameters": dict(node.parameters.of_node),
        "policies": {
            (vhost.name, policy.name, policy.operator): policy
            for vhost in node.vhosts.values()
            for policy in (*vhost.policies.policies.values(), *vhost.policies.operator_policies.values())
        },
        "exchanges": {
            (vhost.name, e.name): (e.type, e.durable, e.auto_delete, e.internal, e.arguments, e.alternate)
            for vhost in node.vhosts.values()
            for e in vhost.exchanges.values()
        },
        "bindings": [
            (vhost.name, exchange.name, *identity)
            for vhost in node.vhosts.values()
            for exchange in vhost.exchanges.values()
            for identity in exchange.bindings
        ],
        "queues": {
            (vhost.name, q.name): (q.durable, q.auto_delete, q.arguments, q.rules, q.paused)
            for vhost in node.vhosts.values()
            for q in vhost.queues.values()
        },
    }


def random_commands(count: int) -> Iterator[Command]:
    """Commands over a few names, so that they meet; many of them cannot be carried out."""
    chance = random.Random(SEED)
    for _ in range(count):
        vhost, name, other = (chance.choice(names) for names in (["v", "w"], "abc", "abc"))
        key, to_queue = chance.choice(["", "k", "#"]), chance.random() < 0.5
        kind = chance.choice(sorted(EXCHANGE_TYPES))
        flag = chance.random() < 0.3
        possible: list[Command] = [
            c.AddVhost(name=vhost),
            c.AddVhost(name=vhost),
            c.DeleteVhost(name=vhost) if name == other == "a" else c.AddVhost(name=vhost),
            c.SetTracing(vhost=vhost, on=flag),
            c.SetVhostMetadata(vhost=vhost, metadata=VhostMetadata(name, frozenset(key), "classic")),
            c.SetParameter(vhost=vhost, component=name, name=other, value=key),
            c.ClearParameter(vhost=vhost, component=name, name=other),
            c.SetGlobalParameter(name=name, value=other),
            c.ClearGlobalParameter(name=name),
            c.PutUser(name=name, password=quick_hash(other), tags=frozenset(key)),
            c.DeleteUser(name=name),
            c.SetUserLimits(user=name, max_channels=len(key)),
            c.SetVhostLimits(vhost=vhost, max_queues=len(key) + 5),
            c.PutPolicy(
                vhost=vhost,
                name=name,
                pattern=other,
                definition={"max-length": 5} if flag else {"alternate-exchange": other, "expires": 9},
                priority=len(key),
                operator=flag,
            ),
            c.DeletePolicy(vhost=vhost, name=name, operator=flag),
            c.SetPermissions(user=name, vhost=vhost, permissions=Permissions(write=other)),
            c.SetTopicPermissions(
                user=name, vhost=vhost, exchange=other, permissions=TopicPermissions(read=other)
            ),
            c.ClearPermissions(user=name, vhost=vhost),
            c.ClearTopicPermissions(user=name, vhost=vhost, exchange=other),
            c.DeclareExchange(vhost=vhost, name=name, type=kind, auto_delete=flag, internal=not flag),
            c.DeleteExchange(vhost=vhost, name=name),
            c.DeclareQueue(vhost=vhost, name=name, durable=flag, arguments={"x": 1}),
            c.DeleteQueue(vhost=vhost, name=name),
            c.PauseQueue(vhost=vhost, name=name),
            c.ResumeQueue(vhost=vhost, name=name),
            c.Bind(vhost=vhost, source=name, destination=other, to_queue=to_queue, routing_key=key),
            c.Bind(vhost=vhost, source=name, destination=other, to_queue=True, routing_key="2"),
            c.Unbind(vhost=vhost, source=name, destination=other, to_queue=to_queue, routing_key=key),
        ]
        yield chance.choice(possible)


def history(made: list[Command]) -> list[dict[str, object]]:
    """The topology after every command, a refused one included."""
    node = Node(FakeWorld(), Limits(), EXCHANGE_TYPES, "test")
    found = []
    for command in made:
        with contextlib.suppress(AmqpError, KeyError):
            node.execute(command)
        found.append(topology(node))
    return found


def test_same_commands_give_the_same_topology() -> None:
    made = list(random_commands(1_000))
    first = history(made)
    assert first == history(made)
    assert any(all(moment.values()) for moment in first), "the commands make something of everything"


@pytest.mark.parametrize(
    "command",
    [
        c.AddVhost(name="/"),
        c.DeclareExchange(vhost="/", name="amq.direct", type="direct"),
        c.DeclareQueue(vhost="/", name="q", durable=True),
        c.Bind(vhost="/", source="amq.direct", destination="q", to_queue=True, routing_key="k"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_command_carried_out_twice_is_carried_out_once(command: Command) -> None:
    node = make_node(FakeWorld())
    node.execute(c.DeclareQueue(vhost="/", name="q", durable=True))
    node.execute(c.Bind(vhost="/", source="amq.direct", destination="q", to_queue=True, routing_key="k"))
    before = topology(node)
    vhost, queue = node.vhosts["/"], node.vhosts["/"].queues["q"]
    node.execute(command)
    assert topology(node) == before
    assert node.vhosts["/"] is vhost
    assert vhost.queues["q"] is queue


@pytest.mark.parametrize(
    "command",
    [
        c.DeleteVhost(name="nothing"),
        c.DeleteUser(name="nobody"),
        c.ClearPermissions(user="guest", vhost="nothing"),
        c.ClearTopicPermissions(user="guest", vhost="/", exchange="nothing"),
        c.ClearParameter(vhost="/", component="shovel", name="nothing"),
        c.ClearGlobalParameter(name="nothing"),
        c.DeletePolicy(vhost="/", name="nothing"),
        c.DeleteExchange(vhost="/", name="nothing"),
        c.DeleteQueue(vhost="/", name="nothing"),
        c.Unbind(vhost="/", source="amq.direct", destination="amq.fanout", to_queue=False),
    ],
    ids=lambda command: type(command).__name__,
)
def test_removing_what_is_not_there_changes_nothing(command: Command) -> None:
    node = make_node(FakeWorld())
    before = topology(node)
    node.execute(command)
    assert topology(node) == before


@pytest.mark.parametrize(
    ("source", "destination", "to_queue"),
    [("nothing", "q", True), ("amq.direct", "nothing", True), ("amq.direct", "nothing", False)],
)
def test_binding_what_is_not_there_is_not_found(source: str, destination: str, to_queue: bool) -> None:
    node = make_node(FakeWorld())
    node.execute(c.DeclareQueue(vhost="/", name="q"))
    with pytest.raises(NotFound):
        node.execute(c.Bind(vhost="/", source=source, destination=destination, to_queue=to_queue))


def test_vhost_starts_with_the_exchanges_of_the_specification() -> None:
    node = make_node(FakeWorld())
    found = {name: (e.type, e.durable) for name, e in node.vhosts["/"].exchanges.items()}
    assert found == {
        "": ("direct", True),
        "amq.direct": ("direct", True),
        "amq.fanout": ("fanout", True),
        "amq.topic": ("topic", True),
        "amq.rabbitmq.trace": ("topic", True),
        "amq.headers": ("headers", True),
        "amq.match": ("headers", True),
    }


def test_changing_a_user_keeps_its_permissions() -> None:
    node = make_node(FakeWorld())
    node.execute(c.PutUser(name="guest", password=None, tags=frozenset({"management"})))
    user = node.users["guest"]
    assert (user.password, user.tags) == (None, frozenset({"management"}))
    assert user.permissions == {"/": Permissions(".*", ".*", ".*")}


def test_deleting_a_user_closes_its_connections_and_no_others() -> None:
    node = make_node(FakeWorld())
    node.execute(c.PutUser(name="other", password=quick_hash("other")))
    node.execute(c.SetPermissions(user="other", vhost="/", permissions=Permissions(".*", ".*", ".*")))
    gone, stays = FakeClient(node).open("other"), FakeClient(node).open()
    node.execute(c.DeleteUser(name="other"))
    assert [close.reply_code for close in gone.methods(0)] == [320]  # type: ignore[attr-defined]
    assert stays.methods(0) == []


# --- vhosts and permissions that go ---


def test_vhost_goes_with_all_that_is_in_it_and_who_is_connected_is_told() -> None:
    world = FakeWorld()
    node = make_node(world)
    before = topology(node)
    node.execute(c.AddVhost(name="v"))
    everything = Permissions(".*", ".*", ".*")
    node.execute(c.SetPermissions(user="guest", vhost="v", permissions=everything))
    topics = TopicPermissions(write="a")
    node.execute(c.SetTopicPermissions(user="guest", vhost="v", exchange="e", permissions=topics))
    node.execute(c.DeclareExchange(vhost="v", name="e", type="x-delayed-message", arguments=DELAYED))
    node.execute(c.DeclareQueue(vhost="v", name="q", durable=True, arguments={"x-expires": 1000}))
    node.execute(c.Bind(vhost="v", source="e", destination="q", to_queue=True))
    node.execute(c.PutPolicy(vhost="v", name="p", pattern="", definition={"max-length": 5}))
    node.execute(c.SetParameter(vhost="v", component="shovel", name="s", value={}))
    there, elsewhere = FakeClient(node, name="there"), FakeClient(node, name="elsewhere").open()
    there.open(vhost="v")
    there.declare("mine", exclusive=True)
    there.consume("q")
    there.publish("", "q", b"x")
    there.frames()
    queue = node.vhosts["v"].queues["q"]
    node.execute(c.DeleteVhost(name="v"))
    node.end_turn()
    (close,) = there.methods(0)
    assert isinstance(close, ConnectionClose)
    assert close.reply_text == "CONNECTION_FORCED - vhost 'v' is deleted"
    assert (queue.deleted, topology(node)) == (True, before)
    there.hang_up()
    elsewhere.declare("q")
    world.advance(10)
    assert world.errors == []
    node.execute(c.AddVhost(name="v"))
    assert node.vhosts["v"].queues == {}


def test_who_has_no_permissions_any_more_is_refused_at_once() -> None:
    node = make_node(FakeWorld())
    client = FakeClient(node).open()
    client.declare("q")
    client.publish("", "q", b"1")
    node.execute(c.ClearPermissions(user="guest", vhost="/"))
    client.publish("", "q", b"2")
    client.expect_close(403)
    assert node.vhosts["/"].queues["q"].message_count == 1


def test_without_topic_permissions_every_key_is_allowed_again() -> None:
    node = make_node(FakeWorld())
    only_a = TopicPermissions(write="^a$")
    node.execute(c.SetTopicPermissions(user="guest", vhost="/", exchange="amq.topic", permissions=only_a))
    client = FakeClient(node).open()
    client.declare("q")
    client.bind("q", "amq.topic", "#")
    node.execute(c.ClearTopicPermissions(user="guest", vhost="/", exchange="amq.topic"))
    client.publish("amq.topic", "b", b"x")
    assert node.vhosts["/"].queues["q"].message_count == 1
