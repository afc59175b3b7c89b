"""Streams through Node's amqplib: the scenarios in node/streams.js."""

from __future__ import annotations

import pytest

from tests.clients.node_client import Scenario, scenarios
from tests.support.process import Address


@pytest.fixture
def scenario(broker: Address, name: str) -> Scenario:
    return scenarios(broker, name)


def test_consumer_begins_where_it_says(scenario: Scenario) -> None:
    assert scenario("streams", "offsets") == {
        "first": list(range(10)),
        "last": [9],
        "number": [6, 7, 8, 9],
        "timestamp": list(range(10)),
        "interval": list(range(10)),
    }


def test_filters_choose_what_comes(scenario: Scenario) -> None:
    assert scenario("streams", "filters") == {
        "a": [1, 3, 5, 7, 9, 11],
        "both": [3, 7, 11],
        "either": [1, 2, 3, 5, 6, 7, 9, 10, 11],
        "plain": [0, 3, 4, 7, 8, 11],
    }


def test_twenty_consumers_at_different_offsets_each_get_exactly_their_messages(scenario: Scenario) -> None:
    assert scenario("streams", "twenty") == [True] * 20


def test_consumer_with_a_name_goes_on_where_it_was(scenario: Scenario) -> None:
    assert scenario("streams", "tracking") == [list(range(4)), list(range(4, 10))]


def test_consumer_without_prefetch_is_refused(scenario: Scenario) -> None:
    assert scenario("streams", "withoutPrefetch") == 406
