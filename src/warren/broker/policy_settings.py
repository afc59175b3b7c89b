"""What may stand in the definition of a policy, and what in an operator's.

Those of queues are the rules of `rules.py`. Some that RabbitMQ knows are checked and have no effect here:
people bring their policies along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Value
from warren.broker.rules import CHECKED_ONLY, COUNT_MAX, RULES, name, one_of, text, whole_number

Read: TypeAlias = Callable[[Value], Any]

ALTERNATE_EXCHANGE = "alternate-exchange"


def number_or_names(value: Value) -> Value:
    """How many nodes a queue is mirrored to, or which."""
    if isinstance(value, list):
        return [name(item) for item in value]
    return whole_number(1, COUNT_MAX)(value)


any_count = whole_number(0, COUNT_MAX)
promotion = one_of("always", "when-synced")
IN_MEMORY: dict[str, Read] = {"max-in-memory-length": any_count, "max-in-memory-bytes": any_count}
WITHOUT_EFFECT: dict[str, Read] = {
    **IN_MEMORY,
    "queue-version": whole_number(1, 2),
    "queue-leader-locator": one_of("client-local", "balanced", "random", "least-leaders"),
    "initial-cluster-size": any_count,
    "dead-letter-strategy": one_of("at-most-once", "at-least-once"),
    "ha-mode": one_of("all", "exactly", "nodes"),
    "ha-params": number_or_names,
    "ha-sync-mode": one_of("manual", "automatic"),
    "ha-sync-batch-size": whole_number(1, COUNT_MAX),
    "ha-promote-on-shutdown": promotion,
    "ha-promote-on-failure": promotion,
    "federation-upstream": name,
    "federation-upstream-set": name,
    "federation-upstream-pattern": name,
}
SETTINGS: dict[str, Read] = {
    **{rule.name: rule.check for rule in (*RULES, *CHECKED_ONLY) if rule.in_policies},
    ALTERNATE_EXCHANGE: text,
    **WITHOUT_EFFECT,
}
OPERATOR_SETTINGS: dict[str, Read] = {
    **{rule.name: rule.check for rule in RULES if rule.in_operator_policies},
    **IN_MEMORY,
}


def check_definition(definition: Table, *, operator: bool) -> None:
    """406 if something in it is not known, or makes no sense."""
    if not isinstance(definition, dict):
        raise PreconditionFailed(f"definition: expected a table, not {definition!r}")
    if not definition:
        raise PreconditionFailed("no policy provided")
    settings = OPERATOR_SETTINGS if operator else SETTINGS
    unknown = sorted(definition.keys() - settings.keys())
    if unknown:
        raise PreconditionFailed(_not_recognised(unknown))
    for setting, value in definition.items():
        try:
            settings[setting](value)
        except ValueError as error:
            raise PreconditionFailed(f"{setting}: {error}") from None
    _check_delays(definition)


def _not_recognised(unknown: list[str]) -> str:
    if len(unknown) == 1:
        return f"{unknown[0]} is not a recognised policy setting"
    return f"{', '.join(unknown)} are not recognised policy settings"


def _check_delays(definition: Table) -> None:
    least, most = definition.get("retry-delay-min"), definition.get("retry-delay-max")
    if isinstance(least, int) and isinstance(most, int) and most < least:
        raise PreconditionFailed(f"retry-delay-max: lower than retry-delay-min, {least}")
