"""The rules of queues through Node's amqplib, whose options name them: the scenarios in node/rules.js."""

from __future__ import annotations

import pytest

from tests.clients.node_client import Scenario, scenarios
from tests.support.process import Address


@pytest.fixture
def scenario(broker: Address, name: str) -> Scenario:
    return scenarios(broker, name)


def test_consumer_of_lower_priority_gets_what_the_higher_has_no_room_for(scenario: Scenario) -> None:
    assert scenario("rules", "consumerPriority") == {"high": ["1", "2", "4"], "low": ["3"]}


def test_expired_message_becomes_a_dead_letter_from_behind_one_that_stays(scenario: Scenario) -> None:
    assert scenario("rules", "expiration") == {
        "body": "expires",
        "reason": "expired",
        "queue": True,
        "count": 1,
        "originalExpiration": "60",
        "left": ["stays"],
    }


def test_messages_die_in_order_when_the_queue_has_a_time_limit(scenario: Scenario) -> None:
    assert scenario("rules", "messageTtl") == {"dead": ["1", "2", "3"], "left": []}


def test_higher_priorities_come_first_and_equal_ones_in_order(scenario: Scenario) -> None:
    assert scenario("rules", "maxPriority") == ["1", "4", "6", "5", "2", "0", "3"]


def test_oldest_beyond_the_limit_are_dropped(scenario: Scenario) -> None:
    assert scenario("rules", "maxLength") == ["3", "4"]


def test_exactly_the_refused_messages_are_nacked(scenario: Scenario) -> None:
    assert scenario("rules", "rejectPublish") == ["ack", "ack", "nack", "nack"]


def test_delayed_messages_come_in_the_order_of_their_times(scenario: Scenario) -> None:
    assert scenario("rules", "delayed") == ["0", "1", "5"]
