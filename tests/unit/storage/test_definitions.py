from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fakes import EXCHANGE_TYPES, FakeWorld
from warren.amqp.table import Int16, Int64
from warren.broker import commands as c
from warren.broker.access import Permissions, TopicPermissions
from warren.broker.client import ClientId
from warren.broker.commands import Command
from warren.broker.node import Limits, Node
from warren.broker.parameters import Json
from warren.storage import definitions as d
from warren.storage.checked_lines import checked_line
from warren.storage.definitions import Definitions, definition_line
from warren.storage.definitions_recovery import recover_definitions

GOLDEN = Path(__file__).with_name("golden") / "definitions-1.log"
VHOST = c.AddVhost(name="/")
USER = c.PutUser(name="u", password=None)
PERMISSIONS = c.SetPermissions(user="u", vhost="/", permissions=Permissions(".*", ".*", ".*"))
TOPIC = c.SetTopicPermissions(user="u", vhost="/", exchange="e", permissions=TopicPermissions("a"))
EXCHANGE = c.DeclareExchange(vhost="/", name="e", type="topic")
QUEUE = c.DeclareQueue(vhost="/", name="q", durable=True)
BINDING = c.Bind(vhost="/", source="e", destination="q", to_queue=True, routing_key="k")
ALL: list[Command] = [VHOST, USER, PERMISSIONS, TOPIC, EXCHANGE, QUEUE, BINDING]
DELETE_QUEUE = c.DeleteQueue(vhost="/", name="q")
DELETE_EXCHANGE = c.DeleteExchange(vhost="/", name="e")


def recorded(*commands: Command) -> Definitions:
    definitions = Definitions()
    for command in commands:
        assert definitions.record(command), f"{command} changes something"
    return definitions


def bind(source: str, destination: str, *, to_queue: bool) -> c.Bind:
    return c.Bind(vhost="/", source=source, destination=destination, to_queue=to_queue)


def reopened(definitions: Definitions) -> Definitions:
    found = recover_definitions(definitions.take_pending())
    assert found.problems == []
    return found.definitions


def file_of(*contents: dict[str, Json]) -> bytes:
    return b"".join(map(checked_line, contents))


# --- what survives ---


def test_everything_durable_comes_back_in_an_order_that_can_be_carried_out() -> None:
    definitions = reopened(recorded(VHOST, EXCHANGE, USER, QUEUE, BINDING, PERMISSIONS, TOPIC))
    assert definitions.commands() == ALL
    node = Node(FakeWorld(), Limits(), EXCHANGE_TYPES, "test")
    for command in definitions.commands():
        node.execute(command)
    assert [b.routing_key for b in node.vhosts["/"].queues["q"].incoming] == ["k"]
    assert node.users["u"].topic_permissions == {("/", "e"): TopicPermissions("a")}


@pytest.mark.parametrize(
    "command",
    [
        c.DeclareQueue(vhost="/", name="transient"),
        c.DeclareExchange(vhost="/", name="transient", type="direct", durable=False),
        c.DeclareExchange(vhost="/", name="amq.topic", type="topic"),
        c.DeclareExchange(vhost="/", name="", type="direct"),
        bind("e", "transient", to_queue=True),
        bind("transient", "q", to_queue=True),
        bind("e", "q", to_queue=False),
        c.SetPermissions(user="nobody", vhost="/", permissions=Permissions()),
        c.DeleteUser(name="nobody"),
        c.DeleteQueue(vhost="/", name="e"),
        c.DeleteExchange(vhost="/", name="amq.topic"),
        c.Unbind(vhost="/", source="e", destination="q", to_queue=True, routing_key="other"),
        *ALL,
    ],
    ids=repr,
)
def test_what_does_not_survive_or_is_there_already_writes_nothing(command: Command) -> None:
    definitions = recorded(*ALL)
    definitions.take_pending()
    assert not definitions.record(command)
    assert definitions.take_pending() == b""
    assert definitions.commands() == ALL


def test_exclusive_queue_is_not_recorded_even_if_durable() -> None:
    definitions = recorded(VHOST)
    assert not definitions.record(c.DeclareQueue(vhost="/", name="q", durable=True, owner=ClientId(1)))
    assert definitions.commands() == [VHOST]


@pytest.mark.parametrize(
    "binding",
    [
        bind("amq.topic", "q", to_queue=True),
        bind("amq.topic", "amq.fanout", to_queue=False),
        bind("e", "amq.match", to_queue=False),
        bind("e", "e", to_queue=False),
    ],
    ids=repr,
)
def test_binding_between_durable_ends_survives(binding: c.Bind) -> None:
    assert reopened(recorded(*ALL, binding)).commands() == [*ALL, binding]


POLICY = c.PutPolicy(vhost="/", name="p", pattern="^q", definition={"max-length": 5})
OPERATOR_POLICY = c.PutPolicy(vhost="/", name="p", pattern="", definition={"expires": 5}, operator=True)
VHOST_LIMITS = c.SetVhostLimits(vhost="/", max_queues=1)
USER_LIMITS = c.SetUserLimits(user="u", max_channels=1)


def test_policies_and_limits_come_back_and_policies_before_what_they_are_for() -> None:
    definitions = reopened(
        recorded(VHOST, QUEUE, EXCHANGE, USER, USER_LIMITS, OPERATOR_POLICY, POLICY, VHOST_LIMITS)
    )
    assert definitions.commands() == [
        VHOST, VHOST_LIMITS, OPERATOR_POLICY, POLICY, USER, USER_LIMITS, EXCHANGE, QUEUE
    ]  # fmt: skip
    node = Node(FakeWorld(), Limits(), EXCHANGE_TYPES, "test")
    node.restore(definitions.commands())
    queue = node.vhosts["/"].queues["q"]
    assert (queue.rules.max_length, queue.rules.expires) == (5, 5)
    assert node.vhosts["/"].limits.max_queues == 1
    assert node.users["u"].limits.max_channels == 1


def test_policies_and_limits_are_replaced_and_the_operators_are_others() -> None:
    changed = c.PutPolicy(vhost="/", name="p", pattern="^q", definition={"max-length": 6})
    none = c.SetVhostLimits(vhost="/")
    definitions = recorded(VHOST, POLICY, OPERATOR_POLICY, VHOST_LIMITS, changed, none)
    assert not definitions.record(changed)
    assert reopened(definitions).commands() == [VHOST, none, changed, OPERATOR_POLICY]
    assert definitions.record(c.DeletePolicy(vhost="/", name="p"))
    assert not definitions.record(c.DeletePolicy(vhost="/", name="p"))
    assert definitions.commands() == [VHOST, none, OPERATOR_POLICY]


def test_limits_of_a_user_go_with_it() -> None:
    definitions = recorded(USER, USER_LIMITS, c.DeleteUser(name="u"), USER)
    assert definitions.commands() == [USER]


def test_limits_do_not_keep_queues_from_coming_back() -> None:
    node = Node(FakeWorld(), Limits(), EXCHANGE_TYPES, "test")
    node.restore([VHOST, c.SetVhostLimits(vhost="/", max_queues=0), QUEUE])
    assert "q" in node.vhosts["/"].queues


def test_declaring_again_with_other_arguments_changes_nothing_as_in_the_model() -> None:
    definitions = recorded(VHOST, QUEUE)
    assert not definitions.record(c.DeclareQueue(vhost="/", name="q", durable=True, arguments={"x": 1}))
    assert definitions.commands() == [VHOST, QUEUE]


def test_putting_a_user_again_replaces_it_and_keeps_its_permissions() -> None:
    changed = c.PutUser(name="u", password=None, tags=frozenset({"administrator"}))
    assert reopened(recorded(USER, PERMISSIONS, changed)).commands() == [changed, PERMISSIONS]


def test_bindings_are_told_apart_by_the_type_of_their_arguments() -> None:
    short, plain = (
        c.Bind(vhost="/", source="e", destination="q", to_queue=True, arguments={"a": value})
        for value in (Int16(5), 5)
    )
    definitions = recorded(VHOST, EXCHANGE, QUEUE, short, plain)
    assert definitions.commands()[-2:] == [short, plain]
    assert len(reopened(definitions).commands()) == 5


def test_unbind_finds_a_binding_whose_arguments_have_the_same_bytes() -> None:
    large = 2**40
    made = c.Bind(vhost="/", source="e", destination="q", to_queue=True, arguments={"a": Int64(large)})
    gone = c.Unbind(vhost="/", source="e", destination="q", to_queue=True, arguments={"a": large})
    assert reopened(recorded(VHOST, EXCHANGE, QUEUE, made, gone)).commands() == [VHOST, EXCHANGE, QUEUE]


# --- what goes with what ---


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (DELETE_QUEUE, [VHOST, USER, PERMISSIONS, TOPIC, EXCHANGE]),
        (DELETE_EXCHANGE, [VHOST, USER, PERMISSIONS, TOPIC, QUEUE]),
        (c.DeleteUser(name="u"), [VHOST, EXCHANGE, QUEUE, BINDING]),
    ],
    ids=["queue", "exchange", "user"],
)
def test_what_hangs_on_something_goes_with_it_without_a_line(command: Command, left: list[Command]) -> None:
    definitions = recorded(*ALL)
    before = definitions.take_pending()
    assert definitions.record(command)
    line = definitions.take_pending()
    assert line == definition_line(command)
    assert definitions.commands() == left
    assert recover_definitions(before + line).definitions.commands() == left


def test_bindings_do_not_return_with_a_queue_of_the_same_name() -> None:
    again = recorded(VHOST, EXCHANGE, QUEUE, BINDING, DELETE_QUEUE, QUEUE)
    assert again.commands() == [VHOST, EXCHANGE, QUEUE]
    assert again.record(BINDING)


def test_queue_and_exchange_of_one_name_have_their_own_bindings() -> None:
    exchange = c.DeclareExchange(vhost="/", name="q", type="fanout")
    to_queue, to_exchange = bind("e", "q", to_queue=True), bind("e", "q", to_queue=False)
    definitions = recorded(VHOST, EXCHANGE, exchange, QUEUE, to_queue, to_exchange, DELETE_QUEUE)
    assert definitions.commands() == [VHOST, EXCHANGE, exchange, to_exchange]


def test_binding_between_exchanges_of_every_vhost_goes_with_the_vhost() -> None:
    """They have no keys that it could hang on."""
    definitions = recorded(VHOST, bind("amq.topic", "amq.fanout", to_queue=False))
    assert len(definitions.commands()) == 2
    assert definitions.record(c.DeleteVhost(name="/"))
    assert (definitions.live, definitions.hanging) == ({}, {})


def test_bindings_go_with_the_vhost_of_their_queue() -> None:
    definitions = recorded(VHOST, EXCHANGE, QUEUE, BINDING, bind("amq.topic", "q", to_queue=True))
    assert definitions.record(c.DeleteVhost(name="/"))
    assert (definitions.live, definitions.numbers, definitions.hanging) == ({}, {}, {})


def test_nothing_is_remembered_of_what_was_deleted() -> None:
    definitions = recorded(*ALL, DELETE_QUEUE, DELETE_EXCHANGE, c.DeleteUser(name="u"))
    assert (definitions.commands(), definitions.numbers, definitions.hanging) == ([VHOST], {}, {})


def test_command_that_declared_a_queue_is_found_by_its_name() -> None:
    queue = c.DeclareQueue(vhost="/", name="r", durable=True, arguments={"x": Int16(5)})
    assert recorded(VHOST, QUEUE, queue).queue("/", "r") == queue


# --- queue numbers ---


def test_queues_are_numbered_in_the_order_they_were_declared() -> None:
    definitions = recorded(VHOST, QUEUE, c.DeclareQueue(vhost="/", name="r", durable=True))
    assert (definitions.queue_number("/", "q"), definitions.queue_number("/", "r")) == (1, 2)


def test_queue_that_does_not_survive_has_no_number() -> None:
    with pytest.raises(KeyError):
        recorded(VHOST).queue_number("/", "q")


def test_number_is_not_used_again_after_delete_reopening_and_compaction() -> None:
    definitions = reopened(recorded(VHOST, QUEUE, DELETE_QUEUE))
    compacted = recover_definitions(definitions.compacted()).definitions
    for each in (definitions, compacted):
        assert each.record(QUEUE)
        assert each.queue_number("/", "q") == 2


def test_number_of_a_live_queue_survives_compaction() -> None:
    definitions = recorded(VHOST, QUEUE, DELETE_QUEUE, QUEUE)
    assert recover_definitions(definitions.compacted()).definitions.queue_number("/", "q") == 2


def test_reserved_numbers_are_not_given() -> None:
    definitions = recorded(VHOST)
    definitions.reserve_queue_numbers(17)
    definitions.reserve_queue_numbers(3)
    assert definitions.record(QUEUE)
    assert definitions.queue_number("/", "q") == 18


# --- the file ---


def test_file_of_format_1_is_read_and_written_byte_for_byte() -> None:
    golden = GOLDEN.read_bytes()
    found = recover_definitions(golden)
    assert found.problems == []
    assert found.definitions.commands() == ALL
    assert found.definitions.queue_number("/", "q") == 17
    assert found.definitions.next_queue_number == 23
    assert found.definitions.compacted() == golden


def test_new_file_begins_with_its_format() -> None:
    definitions = recover_definitions(b"").definitions
    assert definitions.record(VHOST)
    assert definitions.take_pending() == file_of({"format": 1}, {"add_vhost": {"name": "/"}})


def test_lines_are_handed_out_once() -> None:
    definitions = recorded(VHOST)
    definitions.take_pending()
    assert definitions.take_pending() == b""
    assert definitions.record(USER)
    assert definitions.take_pending() == definition_line(USER)


def test_reopened_file_is_appended_to() -> None:
    first = recorded(VHOST, QUEUE)
    data = first.take_pending()
    second = recover_definitions(data).definitions
    assert second.record(DELETE_QUEUE)
    assert recover_definitions(data + second.take_pending()).definitions.commands() == [VHOST]


def test_compaction_holds_what_is_live_and_takes_the_place_of_what_is_pending() -> None:
    definitions = recorded(VHOST, QUEUE, DELETE_QUEUE, EXCHANGE)
    assert definitions.compacted() == file_of(
        {"format": 1, "next_queue_number": 2},
        {"add_vhost": {"name": "/"}},
        {"declare_exchange": {"vhost": "/", "name": "e", "type": "topic"}},
    )
    assert definitions.take_pending() == b""


def test_compaction_is_wanted_when_more_than_enough_lines_are_dead() -> None:
    definitions = recorded(VHOST)
    for _ in range(d.DEAD_LINES_MIN // 2):
        definitions.record(QUEUE)
        definitions.record(DELETE_QUEUE)
    assert not definitions.wants_compaction
    definitions.record(QUEUE)
    definitions.record(DELETE_QUEUE)
    assert definitions.wants_compaction
    assert reopened(definitions).wants_compaction
    definitions.compacted()
    assert not definitions.wants_compaction


def test_compaction_is_not_wanted_while_most_lines_are_live() -> None:
    definitions = recorded(VHOST)
    for number in range(d.DEAD_LINES_MIN + 10):
        definitions.record(c.DeclareQueue(vhost="/", name=f"q{number}", durable=True))
    for _ in range((d.DEAD_LINES_MIN + 10) // 2):
        definitions.record(USER)
        definitions.record(c.DeleteUser(name="u"))
    assert not definitions.wants_compaction
    definitions.record(USER)
    definitions.record(c.DeleteUser(name="u"))
    assert definitions.wants_compaction


# --- vhosts and permissions that go ---


def test_vhost_that_is_deleted_takes_along_all_that_hangs_on_it() -> None:
    definitions = recorded(*ALL, c.DeleteVhost(name="/"))
    assert definitions.commands() == [USER, PERMISSIONS, TOPIC]  # these are cleared by commands of their own
    assert reopened(definitions).commands() == [USER, PERMISSIONS, TOPIC]


def test_permissions_that_are_cleared_do_not_come_back() -> None:
    cleared = c.ClearPermissions(user="u", vhost="/")
    topics_cleared = c.ClearTopicPermissions(user="u", vhost="/", exchange="e")
    definitions = recorded(*ALL, cleared, topics_cleared)
    kept = [VHOST, USER, EXCHANGE, QUEUE, BINDING]
    assert definitions.commands() == kept
    assert reopened(definitions).commands() == kept
    assert not definitions.record(cleared)


def test_bindings_of_the_firehose_come_back_without_its_exchange() -> None:
    binding = c.Bind(vhost="/", source="amq.rabbitmq.trace", destination="q", to_queue=True, routing_key="#")
    assert reopened(recorded(VHOST, QUEUE, binding)).commands() == [VHOST, QUEUE, binding]
