from __future__ import annotations

import pytest

from tests.support.fakes import FakeWorld, make_node
from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table
from warren.broker.changes import policy_of
from warren.broker.commands import DeclareExchange, DeclareQueue, PutPolicy
from warren.broker.exchange.exchange import Exchange
from warren.broker.making import make_exchange, make_queue
from warren.broker.node import Node
from warren.broker.policy import APPLY_TO, InForce, Policies, Policy
from warren.broker.queue import Queue
from warren.broker.rules import RULES


@pytest.fixture
def node() -> Node:
    return make_node(FakeWorld())


def queue(node: Node, name: str = "q", **arguments: int | str) -> Queue:
    named: Table = {f"x-{key}".replace("_", "-"): value for key, value in arguments.items()}
    return make_queue(node, DeclareQueue(vhost="/", name=name, arguments=named))


def exchange(node: Node, name: str) -> Exchange:
    return make_exchange(node, DeclareExchange(vhost="/", name=name, type="topic"))


def policy(
    name: str = "p",
    pattern: str = "",
    definition: Table | None = None,
    priority: int = 0,
    apply_to: str = "all",
    *,
    operator: bool = False,
) -> Policy:
    return policy_of(
        PutPolicy(
            vhost="/",
            name=name,
            pattern=pattern,
            definition={"max-length": 1} if definition is None else definition,
            priority=priority,
            apply_to=apply_to,
            operator=operator,
        )
    )


def policies(*them: Policy) -> Policies:
    found = Policies()
    for one in them:
        found.put(one)
    return found


def applied(queue: Queue, *them: Policy) -> Queue:
    policies(*them).apply_to_queue(queue)
    return queue


def in_force(queue: Queue, *them: Policy) -> InForce:
    found = policies(*them)
    found.apply_to_queue(queue)
    return found.in_force(queue)


# --- which one holds ---


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("^a", "ab", True),
        ("^a", "ba", False),
        ("b", "abc", True),
        ("^b$", "abc", False),
        ("", "anything", True),
        (".*", "", True),
        (r"^amq\.", "amq.gen-x", True),
        ("ö", "möbel", True),
    ],
)
def test_pattern_is_searched_in_the_name(node: Node, pattern: str, name: str, matches: bool) -> None:
    assert policy(pattern=pattern).is_for_queue(queue(node, name)) is matches


@pytest.mark.parametrize(
    ("apply_to", "kinds"),
    [
        ("all", {"classic", "quorum", "exchange"}),
        ("queues", {"classic", "quorum"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", set()),
        ("exchanges", {"exchange"}),
    ],
)
def test_apply_to_says_what_kinds_it_is_for(node: Node, apply_to: str, kinds: set[str]) -> None:
    made = policy(apply_to=apply_to)
    found = {kind for kind in ("classic", "quorum") if made.is_for_queue(queue(node, queue_type=kind))}
    if made.is_for_exchange(exchange(node, "e")):
        found.add("exchange")
    assert found == kinds


def test_queue_without_a_type_is_a_classic_one(node: Node) -> None:
    assert policy(apply_to="classic_queues").is_for_queue(queue(node))
    assert not policy(apply_to="quorum_queues").is_for_queue(queue(node))


def test_no_policy_is_for_the_default_exchange(node: Node) -> None:
    assert not policy().is_for_exchange(node.vhosts["/"].exchanges[""])


@pytest.mark.parametrize("apply_to", [kind for kind in APPLY_TO if kind != "exchanges"])
def test_no_operator_policy_is_for_an_exchange(node: Node, apply_to: str) -> None:
    assert not policy(apply_to=apply_to, operator=True).is_for_exchange(exchange(node, "e"))


def test_highest_priority_wins_alone(node: Node) -> None:
    low = policy("low", definition={"max-length": 1, "expires": 10}, priority=-1)
    high = policy("high", definition={"max-length": 100}, priority=5)
    middle = policy("middle", definition={"message-ttl": 3}, priority=0)
    made = applied(queue(node), low, high, middle)
    assert (made.rules.max_length, made.rules.expires, made.rules.message_ttl) == (100, None, None)


def test_policy_of_higher_priority_that_does_not_match_does_not_matter(node: Node) -> None:
    found = in_force(queue(node), policy("other", "^x", priority=9), policy("mine", "^q"))
    assert found.policy is not None
    assert found.policy.name == "mine"


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")])
def test_of_equal_priority_the_first_by_name_wins_in_whatever_order_they_came(
    node: Node, order: tuple[str, ...]
) -> None:
    found = in_force(queue(node), *(policy(name) for name in order))
    assert found.policy is not None
    assert found.policy.name == "a"


def test_policy_that_was_put_again_has_its_new_priority(node: Node) -> None:
    found = in_force(queue(node), policy("a", priority=2), policy("b", priority=1), policy("a", priority=0))
    assert found.policy is not None
    assert found.policy.name == "b"


# --- what becomes of the rules ---


def test_operator_policy_holds_beside_the_policy(node: Node) -> None:
    ours = policy(definition={"dead-letter-exchange": "dlx", "max-length": 10})
    made = applied(queue(node), ours, policy(definition={"message-ttl": 7}, operator=True))
    assert made.rules.dead_letter_exchange == "dlx"
    assert (made.rules.max_length, made.rules.message_ttl) == (10, 7)


@pytest.mark.parametrize(
    ("argument", "ours", "operators", "holds"),
    [
        (None, 10, 5, 5),
        (None, 10, 50, 10),
        (100, None, 50, 50),
        (10, None, 50, 10),
        (3, 10, 5, 3),
        (None, None, 5, 5),
        (20, 10, None, 10),
        (10, 20, None, 10),
    ],
)
def test_lowest_limit_holds_wherever_it_stands(
    node: Node, argument: int | None, ours: int | None, operators: int | None, holds: int
) -> None:
    made = queue(node) if argument is None else queue(node, max_length=argument)
    them = []
    if ours is not None:
        them.append(policy(definition={"max-length": ours}))
    if operators is not None:
        them.append(policy(definition={"max-length": operators}, operator=True))
    assert applied(made, *them).rules.max_length == holds


def test_argument_comes_before_policies_in_what_is_no_limit(node: Node) -> None:
    made = queue(node, overflow="reject-publish", dead_letter_exchange="mine")
    ours = policy(definition={"overflow": "drop-head", "dead-letter-exchange": "ours"})
    operators = policy(definition={"overflow": "reject-publish-dlx"}, operator=True)
    applied(made, ours, operators)
    assert (made.rules.overflow, made.rules.dead_letter_exchange) == ("reject-publish", "mine")


def test_names_of_what_holds_are_known(node: Node) -> None:
    found = policies(policy("ours", "^q"), policy("theirs", "^q", operator=True))
    both, none = queue(node, "q"), queue(node, "other")
    for made in (both, none):
        found.apply_to_queue(made)
    assert found.names_of(both) == ("ours", "theirs")
    assert found.names_of(none) == (None, None)


def test_policy_without_effect_on_queues_is_in_force_all_the_same(node: Node) -> None:
    assert in_force(queue(node), policy(definition={"ha-mode": "all"})).policy is not None


# --- what may stand in one ---

CARRIED: Table = {
    "queue-mode": "lazy",
    "queue-version": 2,
    "max-age": "7D",
    "stream-max-segment-size-bytes": 500_000,
    "queue-leader-locator": "balanced",
    "initial-cluster-size": 3,
    "dead-letter-strategy": "at-least-once",
    "max-in-memory-length": 0,
    "max-in-memory-bytes": 1,
    "target-group-size": 3,
    "replicas": 3,
    "ha-mode": "nodes",
    "ha-params": ["rabbit@a", "rabbit@b"],
    "ha-sync-mode": "automatic",
    "ha-sync-batch-size": 1,
    "ha-promote-on-shutdown": "when-synced",
    "ha-promote-on-failure": "always",
}


def test_settings_that_people_bring_from_rabbitmq_are_taken() -> None:
    policy(definition=CARRIED)
    policy(definition={"ha-mode": "exactly", "ha-params": 2})


@pytest.mark.parametrize(
    "definition",
    [
        {"federation-upstream": "up"},
        {"federation-upstream-set": "all"},
        {"federation-upstream-pattern": "^up-"},
    ],
)
def test_policy_names_upstreams_in_one_of_three_ways(definition: Table) -> None:
    policy(definition=definition)


def test_routing_key_for_dead_letters_needs_no_exchange_beside_it() -> None:
    policy(definition={"dead-letter-routing-key": "key"})


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({}, "no policy provided"),
        ({"foo": 1}, "foo is not a recognised policy setting"),
        ({"foo": 1, "bar": 2, "expires": 1}, "bar, foo are not recognised policy settings"),
        ({"x-max-length": 1}, "x-max-length is not a recognised policy setting"),
        ({"max-length": "x"}, "max-length: expected a whole number, not 'x' (str)"),
        ({"max-length": True}, "max-length: expected a whole number, not True (bool)"),
        ({"max-length": 1.5}, "max-length: expected a whole number, not 1.5 (float)"),
        ({"max-length": -1}, "max-length: -1 is not within 0 and"),
        ({"expires": 0}, "expires: 0 is not within 1 and"),
        ({"overflow": "explode"}, "overflow: 'explode' is none of drop-head"),
        ({"dead-letter-exchange": 1}, "dead-letter-exchange: expected a string, not 1 (int)"),
        ({"alternate-exchange": None}, "alternate-exchange: expected a string, not None"),
        ({"retry-delay-min": 5, "retry-delay-max": 4}, "retry-delay-max: lower than retry-delay-min, 5"),
        ({"max-priority": 5}, "max-priority is not a recognised policy setting"),
        ({"single-active-consumer": True}, "single-active-consumer is not a recognised"),
        ({"queue-type": "quorum"}, "queue-type is not a recognised policy setting"),
        ({"queue-mode": "eager"}, "queue-mode: 'eager' is none of default, lazy"),
        ({"queue-version": 3}, "queue-version: 3 is not within 1 and 2"),
        ({"max-age": "7 days"}, "max-age: expected a number and one of Y/M/D/h/m/s, not '7 days'"),
        ({"ha-params": [1]}, "ha-params: expected a string, not 1 (int)"),
        ({"ha-params": {}}, "ha-params: expected a whole number"),
        ({"federation-upstream": ""}, "federation-upstream: expected a name"),
        ({"federation-upstream-pattern": "("}, "federation-upstream-pattern: '(' is no regular expression"),
        (
            {"federation-upstream": "up", "federation-upstream-set": "all"},
            "cannot specify federation-upstream and federation-upstream-set together",
        ),
    ],
)
def test_definition_that_makes_no_sense_is_406_and_says_why(definition: Table, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as raised:
        policy(definition=definition)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    "setting",
    [
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "consumer-timeout",
        "alternate-exchange",
        "ha-mode",
        "queue-mode",
        "federation-upstream",
    ],
)
def test_operator_policy_has_only_limits(setting: str) -> None:
    with pytest.raises(PreconditionFailed, match=f"{setting} is not a recognised policy setting"):
        policy(definition={setting: "x"}, operator=True)


def test_operator_policy_may_have_every_limit() -> None:
    limits: Table = {rule.name: "5D" if rule.name == "max-age" else 5 for rule in RULES if rule.limit}
    policy(definition={**limits, "max-in-memory-length": 1, "overflow": "reject-publish"}, operator=True)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"pattern": "("}, "pattern: '(' is no regular expression"),
        ({"pattern": None}, "pattern: expected a string, not None"),
        ({"name": 5}, "name: expected a string, not 5"),
        ({"definition": [1]}, "definition: expected a table, not [1]"),
        ({"apply_to": "topics"}, "apply-to: 'topics' is none of all, queues"),
        ({"priority": "5"}, "priority: expected a whole number, not '5'"),
        ({"priority": True}, "priority: expected a whole number, not True"),
        (
            {"apply_to": "exchanges", "operator": True},
            "apply-to: 'exchanges' is none of all, queues, classic",
        ),
    ],
)
def test_policy_that_makes_no_sense_is_406_and_says_why(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(PreconditionFailed) as raised:
        policy(**wrong)  # type: ignore[arg-type]  # which is the point
    assert reason in str(raised.value)
