"""Which queues are replicated, and where their leaders should be."""

from __future__ import annotations

from typing import Any

import pytest

from warren.amqp.table import Table
from warren.broker.client import ClientId
from warren.broker.commands import DeclareQueue
from warren.broker.policy import Policies, Policy
from warren.cluster.placement import Locator
from warren.server.cluster.which_queues import is_replicated, locator_of

CLASSIC: Table = {}
QUORUM: Table = {"x-queue-type": "quorum"}
STREAM: Table = {"x-queue-type": "stream"}


def queue(arguments: Table, **more: Any) -> DeclareQueue:
    return DeclareQueue(vhost="/", arguments=arguments, **{"name": "q", "durable": True, **more})


@pytest.mark.parametrize(
    ("replicate", "arguments", "expected"),
    [
        ("quorum", CLASSIC, False),
        ("quorum", QUORUM, True),
        ("quorum", STREAM, True),
        ("durable", CLASSIC, True),
        ("durable", QUORUM, True),
        ("durable", STREAM, True),
        ("none", QUORUM, False),
        ("none", STREAM, False),
    ],
)
def test_setting_says_which_queues_are_replicated(
    replicate: str, arguments: Table, *, expected: bool
) -> None:
    assert is_replicated(queue(arguments), {}, replicate) is expected


@pytest.mark.parametrize("more", [{"durable": False}, {"owner": ClientId(7)}])
def test_transient_and_exclusive_queues_live_on_one_node(more: dict[str, Any]) -> None:
    assert not is_replicated(queue({}, **more), {"replicas": 3}, "durable")


@pytest.mark.parametrize("name", ["amq.delayed.e", "amq.dedup.e"])
def test_queues_of_durable_exchanges_are_replicated(name: str) -> None:
    assert is_replicated(queue({}, name=name), {}, "quorum")
    assert not is_replicated(queue({}, name=name, durable=False), {}, "quorum")


@pytest.mark.parametrize(
    ("arguments", "policy", "expected"),
    [
        (QUORUM | {"x-quorum-initial-group-size": 1}, {}, False),
        (QUORUM | {"x-quorum-initial-group-size": 5}, {}, True),
        (STREAM | {"x-initial-cluster-size": 1}, {}, False),
        (STREAM | {"x-initial-cluster-size": 2}, {}, True),
        (CLASSIC, {"replicas": 3}, True),
        (QUORUM, {"replicas": 1}, False),
        (QUORUM | {"x-quorum-initial-group-size": 3}, {"replicas": 1}, True),
        (STREAM, {"initial-cluster-size": 1}, False),
        (STREAM, {"initial-cluster-size": 1, "replicas": 3}, True),
        (QUORUM, {"initial-cluster-size": 1}, True),
        (QUORUM, {"target-group-size": 1}, True),
    ],
)
def test_size_by_argument_wins_over_policy_and_policy_over_setting(
    arguments: Table, policy: Table, *, expected: bool
) -> None:
    assert is_replicated(queue(arguments), policy, "quorum") is expected


@pytest.mark.parametrize(
    ("arguments", "policy", "expected"),
    [
        ({}, {}, Locator.CLIENT_LOCAL),
        ({"x-queue-leader-locator": "balanced"}, {}, Locator.BALANCED),
        ({"x-queue-leader-locator": "least-leaders"}, {}, Locator.BALANCED),
        ({"x-queue-master-locator": "min-masters"}, {}, Locator.BALANCED),
        ({}, {"queue-leader-locator": "balanced"}, Locator.BALANCED),
        (
            {"x-queue-leader-locator": "client-local"},
            {"queue-leader-locator": "balanced"},
            Locator.CLIENT_LOCAL,
        ),
    ],
)
def test_locator_by_argument_wins_over_policy(arguments: Table, policy: Table, expected: Locator) -> None:
    assert locator_of(arguments, policy) is expected


def test_policies_are_found_for_a_queue_that_is_about_to_be_made() -> None:
    policies = Policies()
    policies.put(Policy(name="all", pattern="", definition={"replicas": 1}))
    policies.put(
        Policy(name="some", pattern="^q", definition={"replicas": 3}, priority=1, apply_to="streams")
    )
    assert policies.settings_for(queue(STREAM)) == {"replicas": 3}
    assert policies.settings_for(queue(QUORUM)) == {"replicas": 1}
