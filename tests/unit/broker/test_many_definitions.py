"""Changes of definitions that concern very many others: they are spread over turns, and routes that have
nothing to do with them stay remembered.
"""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeBroker
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker import commands
from warren.broker.turns import WORK_A_TURN_MAX
from warren.broker.vhost import POLICY_WORK, UNBIND_WORK

BINDINGS = 5_000
QUEUES = 1_500


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    declare_exchange(broker, "e")
    declare_queue(broker, "q")
    return broker


def declare_exchange(broker: FakeBroker, name: str, alternate: str | None = None) -> None:
    arguments: Table = {} if alternate is None else {"alternate-exchange": alternate}
    broker.node.execute(commands.DeclareExchange(vhost="/", name=name, type="direct", arguments=arguments))


def declare_queue(broker: FakeBroker, name: str) -> None:
    broker.node.execute(commands.DeclareQueue(vhost="/", name=name))


def bind(broker: FakeBroker, source: str, destination: str, key: str) -> None:
    to_queue = destination in broker.vhost.queues
    broker.node.execute(
        commands.Bind(vhost="/", source=source, destination=destination, to_queue=to_queue, routing_key=key)
    )


def bind_many(broker: FakeBroker) -> None:
    for number in range(BINDINGS):
        bind(broker, "e", "q", str(number))
    broker.world.run()


def route(broker: FakeBroker, exchange: str, key: str) -> list[str]:
    found = broker.vhost.route(broker.vhost.exchanges[exchange], encode_name(key))
    walked = broker.vhost.walk(broker.vhost.exchanges[exchange], [key], BasicProperties())
    assert found == walked, "what is remembered is so"
    return [queue.name for queue in found]


def test_bindings_of_a_deleted_queue_go_over_several_turns(broker: FakeBroker) -> None:
    bind_many(broker)
    bindings = broker.vhost.exchanges["e"].bindings
    broker.node.execute(commands.DeleteQueue(vhost="/", name="q"))
    assert route(broker, "e", "0") == route(broker, "e", str(BINDINGS - 1)) == []
    before, turns = BINDINGS, 0
    while bindings:
        assert before - len(bindings) <= WORK_A_TURN_MAX // UNBIND_WORK + 1
        before, turns = len(bindings), turns + 1
        broker.world.turn()
    assert turns > 1


def test_bindings_of_a_deleted_exchange_go_over_several_turns(broker: FakeBroker) -> None:
    declare_exchange(broker, "before")
    bind(broker, "before", "e", "7")
    bind_many(broker)
    assert route(broker, "before", "7") == ["q"]
    exchange, queue = broker.vhost.exchanges["e"], broker.vhost.queues["q"]
    broker.node.execute(commands.DeleteExchange(vhost="/", name="e"))
    assert len(exchange.bindings) > 0
    assert route(broker, "before", "7") == []
    broker.world.run()
    assert not exchange.bindings
    assert not queue.incoming
    assert not broker.vhost.exchanges["before"].bindings


def test_binding_of_a_new_queue_of_the_same_name_stays(broker: FakeBroker) -> None:
    bind_many(broker)
    broker.node.execute(commands.DeleteQueue(vhost="/", name="q"))
    declare_queue(broker, "q")
    for key in ("0", "1", str(BINDINGS - 1)):
        bind(broker, "e", "q", key)
    broker.world.run()
    assert [route(broker, "e", key) for key in ("0", "1", "2", str(BINDINGS - 1))] == [
        ["q"],
        ["q"],
        [],
        ["q"],
    ]
    assert len(broker.vhost.exchanges["e"].bindings) == 3


def test_changes_elsewhere_leave_remembered_routes_alone(broker: FakeBroker) -> None:
    bind(broker, "e", "q", "k")
    assert route(broker, "e", "k") == ["q"]
    remembered = broker.vhost.exchanges["e"].routes
    declare_exchange(broker, "other")
    declare_queue(broker, "p")
    bind(broker, "other", "p", "k")
    bind(broker, "other", "e", "k")
    broker.node.execute(commands.DeleteQueue(vhost="/", name="p"))
    broker.node.execute(commands.DeleteExchange(vhost="/", name="other"))
    assert remembered == {encode_name("k"): [broker.vhost.queues["q"]]}


def test_change_is_seen_by_all_that_lead_there(broker: FakeBroker) -> None:
    for name, alternate in (("first", None), ("second", "later"), ("third", None)):
        declare_exchange(broker, name, alternate)
    bind(broker, "first", "second", "k")
    assert route(broker, "first", "k") == []
    declare_exchange(broker, "later")
    assert route(broker, "first", "k") == []
    bind(broker, "later", "third", "k")
    assert route(broker, "first", "k") == []
    bind(broker, "third", "q", "k")
    assert route(broker, "first", "k") == ["q"]
    broker.node.execute(commands.DeleteExchange(vhost="/", name="later"))
    assert route(broker, "first", "k") == []


def put_policy(broker: FakeBroker, max_length: int, pattern: str = "^many") -> None:
    definition: Table = {"max-length": max_length}
    broker.node.execute(
        commands.PutPolicy(vhost="/", name="p", pattern=pattern, definition=definition, apply_to="queues")
    )


def test_policy_over_very_many_queues_is_applied_over_several_turns(broker: FakeBroker) -> None:
    for number in range(QUEUES):
        declare_queue(broker, f"many{number}")
    broker.world.run()
    queues = [queue for name, queue in broker.vhost.queues.items() if name.startswith("many")]
    put_policy(broker, 1)
    before, turns = 0, 0
    while (done := sum(queue.rules.max_length == 1 for queue in queues)) < QUEUES:
        assert done - before <= WORK_A_TURN_MAX // POLICY_WORK
        before, turns = done, turns + 1
        broker.world.turn()
    assert turns > 1


def test_policy_that_changes_while_it_is_applied_holds_as_it_was_said_last(broker: FakeBroker) -> None:
    for number in range(QUEUES):
        declare_queue(broker, f"many{number}")
    broker.world.run()
    put_policy(broker, 1)
    put_policy(broker, 2, "[02468]$")
    declare_queue(broker, "many-10")
    declare_queue(broker, "many-11")
    broker.world.turn()
    broker.node.execute(commands.DeleteQueue(vhost="/", name="many14"))
    broker.world.run()
    for name, queue in broker.vhost.queues.items():
        assert queue.rules.max_length == (2 if name[-1] in "02468" else None), name
