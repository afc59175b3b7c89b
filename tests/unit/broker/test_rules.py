"""Bounds of the values of rules, and definitions from before these bounds existed."""

from __future__ import annotations

import pytest

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table
from warren.broker.policy_settings import check_definition
from warren.broker.rules import CACHE_SIZE_MAX, TIME_MS_MAX, check_arguments, rules_of

STREAM: Table = {"x-queue-type": "stream"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-cache-size": CACHE_SIZE_MAX + 1}, f"{CACHE_SIZE_MAX + 1} is more than {CACHE_SIZE_MAX}"),
        ({**STREAM, "x-max-age": "101Y"}, "'101Y' is more than 100 years"),
        ({"x-message-ttl": TIME_MS_MAX + 1}, f"{TIME_MS_MAX + 1} is not within 0 and {TIME_MS_MAX}"),
    ],
)
def test_more_than_a_broker_can_keep_is_406_with_the_bound(arguments: Table, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        check_arguments("queue 'q' in vhost '/'", arguments)
    assert refused.value.text.endswith(f"for queue 'q' in vhost '/': {reason}")


def test_bounds_hold_for_policies_too() -> None:
    with pytest.raises(PreconditionFailed, match="max-age: '101Y' is more than 100 years"):
        check_definition({"max-age": "101Y"}, operator=False)


def test_what_was_declared_before_there_was_a_bound_counts_as_the_bound() -> None:
    """Otherwise a start would refuse a queue that an earlier version has declared."""
    assert rules_of({"x-message-deduplication": True, "x-cache-size": 10**12}).cache_size == CACHE_SIZE_MAX
    assert rules_of({**STREAM, "x-max-age": "999999999999Y"}).max_age == TIME_MS_MAX
