"""Policies as clients notice them: on queues and exchanges that are there, and on those that come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from warren.amqp import methods as m
from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table
from warren.broker import commands
from warren.broker.events import PolicyChanged, PolicyDeleted
from warren.broker.queue import Queue


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    broker.stop()
    assert broker.world.errors == []


@pytest.fixture
def client(broker: FakeBroker) -> FakeClient:
    return broker.connect().open()


def put(
    broker: FakeBroker,
    name: str,
    definition: Table,
    pattern: str = "",
    *,
    priority: int = 0,
    apply_to: str = "all",
    operator: bool = False,
) -> None:
    broker.node.execute(
        commands.PutPolicy(
            vhost="/",
            name=name,
            pattern=pattern,
            definition=definition,
            priority=priority,
            apply_to=apply_to,
            operator=operator,
        )
    )


def delete(broker: FakeBroker, name: str, *, operator: bool = False) -> None:
    broker.node.execute(commands.DeletePolicy(vhost="/", name=name, operator=operator))


# --- queues ---


def test_queue_has_the_rules_of_its_policy_from_the_moment_it_is_declared(
    broker: FakeBroker, client: FakeClient
) -> None:
    put(broker, "p", {"max-length": 5}, "^q")
    assert client.declare("q").rules.max_length == 5
    assert client.declare("other").rules.max_length is None


def test_put_changes_the_rules_of_queues_that_are_there(broker: FakeBroker, client: FakeClient) -> None:
    queue, other = client.declare("q"), client.declare("other")
    put(broker, "p", {"max-length": 5}, "^q")
    assert (queue.rules.max_length, other.rules.max_length) == (5, None)
    put(broker, "p", {"max-length": 6}, "^q")
    assert queue.rules.max_length == 6
    put(broker, "p", {"max-length": 7}, "^other")
    assert [queue.rules.max_length for queue in (queue, other)] == [None, 7]
    assert broker.vhost.policies.names_of(queue) == (None, None)
    assert broker.vhost.policies.names_of(other) == ("p", None)


def test_delete_gives_back_the_rules_of_before(broker: FakeBroker, client: FakeClient) -> None:
    queue = client.declare("q", arguments={"x-max-length": 50})
    put(broker, "low", {"max-length": 10, "message-ttl": 9})
    put(broker, "high", {"max-length": 5}, priority=1)
    assert (queue.rules.max_length, queue.rules.message_ttl) == (5, None)
    delete(broker, "high")
    assert (queue.rules.max_length, queue.rules.message_ttl) == (10, 9)
    delete(broker, "low")
    assert (queue.rules.max_length, queue.rules.message_ttl) == (50, None)


def test_operator_policy_lowers_and_never_raises(broker: FakeBroker, client: FakeClient) -> None:
    queue = client.declare("q")
    put(broker, "p", {"max-length": 10})
    put(broker, "p", {"max-length": 100}, operator=True)
    assert queue.rules.max_length == 10
    put(broker, "p", {"max-length": 1}, operator=True)
    assert queue.rules.max_length == 1
    assert broker.vhost.policies.names_of(queue) == ("p", "p")
    delete(broker, "p", operator=True)
    assert queue.rules.max_length == 10


def test_policies_hold_for_exclusive_and_server_named_queues(broker: FakeBroker, client: FakeClient) -> None:
    put(broker, "p", {"max-length": 5}, "^mine$|^amq[.]")
    assert client.declare("mine", exclusive=True).rules.max_length == 5
    named = client.call(m.QueueDeclare(arguments={}), m.QueueDeclareOk).queue
    assert broker.vhost.queues[named].rules.max_length == 5


def test_queue_whose_rules_stay_the_same_is_left_alone(broker: FakeBroker, client: FakeClient) -> None:
    put(broker, "p", {"max-length": 5}, "^q")
    queue, other = client.declare("q"), client.declare("other")
    before = (queue.rules, other.rules)
    put(broker, "p", {"max-length": 5}, "^q", priority=3)
    put(broker, "unrelated", {"max-length": 1}, "^x")
    put(broker, "loses", {"max-length": 1}, "", priority=-1, apply_to="quorum_queues")
    assert queue.rules is before[0]
    assert other.rules is before[1]


def test_queue_declared_again_has_the_policies_of_then(broker: FakeBroker, client: FakeClient) -> None:
    put(broker, "p", {"max-length": 5})
    broker.vhost.remove_queue(client.declare("q"))
    assert broker.vhost.policies.of_queues == {}
    delete(broker, "p")
    assert client.declare("q").rules.max_length is None


def test_policy_does_not_change_what_a_redeclaration_must_say(broker: FakeBroker, client: FakeClient) -> None:
    client.declare("q", arguments={"x-max-length": 50})
    put(broker, "p", {"max-length": 5})
    client.declare("q", arguments={"x-max-length": 50})


def test_policies_of_one_vhost_are_not_those_of_another(broker: FakeBroker, client: FakeClient) -> None:
    broker.node.execute(commands.AddVhost(name="other"))
    broker.node.execute(commands.DeclareQueue(vhost="other", name="q"))
    queue = client.declare("q")
    put(broker, "p", {"max-length": 5})
    assert queue.rules.max_length == 5
    assert broker.node.vhosts["other"].queues["q"].rules.max_length is None


def test_policy_that_is_refused_changes_nothing(broker: FakeBroker, client: FakeClient) -> None:
    queue = client.declare("q")
    put(broker, "p", {"max-length": 5})
    wrong_ones: list[Table] = [{"max-length": "x"}, {"foo": 1}]
    for wrong in wrong_ones:
        with pytest.raises(PreconditionFailed):
            put(broker, "p", wrong)
    assert queue.rules.max_length == 5


def test_changes_of_policies_are_told(broker: FakeBroker) -> None:
    seen: list[object] = []
    broker.node.events.subscribe(PolicyChanged, seen.append)
    broker.node.events.subscribe(PolicyDeleted, seen.append)
    put(broker, "p", {"max-length": 5})
    put(broker, "p", {"max-length": 5})
    put(broker, "p", {"max-length": 5}, operator=True)
    delete(broker, "p")
    delete(broker, "p")
    assert seen == [
        PolicyChanged("/", "p", False),
        PolicyChanged("/", "p", True),
        PolicyDeleted("/", "p", False),
    ]


# --- exchanges ---


def reached(client: FakeClient, queue: Queue) -> int:
    """How many of two messages without a route, published one after the other, reach a queue."""
    before = queue.message_count
    for _ in range(2):
        client.publish("e", "nowhere", b"x")
    return queue.message_count - before


def test_alternate_exchange_of_a_policy_takes_what_has_no_route_and_goes_with_it(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare_exchange("e")
    queue = client.declare("unrouted")
    client.bind("unrouted", "amq.fanout")
    assert reached(client, queue) == 0
    put(broker, "p", {"alternate-exchange": "amq.fanout"}, "^e$", apply_to="exchanges")
    assert broker.vhost.exchanges["e"].policy == "p"
    assert reached(client, queue) == 2
    delete(broker, "p")
    assert broker.vhost.exchanges["e"].policy is None
    assert reached(client, queue) == 0


def test_alternate_exchange_of_the_arguments_comes_before_that_of_a_policy(
    broker: FakeBroker, client: FakeClient
) -> None:
    client.declare_exchange("e", arguments={"alternate-exchange": "amq.fanout"})
    queue, other = client.declare("q"), client.declare("other")
    client.bind("q", "amq.fanout")
    client.bind("other", "amq.topic", "#")
    put(broker, "p", {"alternate-exchange": "amq.topic"})
    assert reached(client, queue) == 2
    assert other.message_count == 0


def test_exchange_declared_later_has_the_alternate_exchange_of_its_policy(
    broker: FakeBroker, client: FakeClient
) -> None:
    put(broker, "p", {"alternate-exchange": "amq.fanout"}, "^e$")
    client.declare_exchange("e")
    queue = client.declare("unrouted")
    client.bind("unrouted", "amq.fanout")
    assert reached(client, queue) == 2


def test_policy_for_queues_is_not_for_exchanges(broker: FakeBroker, client: FakeClient) -> None:
    put(broker, "p", {"alternate-exchange": "amq.fanout"}, apply_to="queues")
    client.declare_exchange("e")
    queue = client.declare("unrouted")
    client.bind("unrouted", "amq.fanout")
    assert reached(client, queue) == 0
