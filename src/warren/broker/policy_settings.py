"""The settings that a policy, and an operator policy, may have in its definition.

Settings of queues are the rules of `rules.py`. Some settings of RabbitMQ are checked but have no effect here,
so that people can bring their policies along.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Value
from warren.broker.rules import ALTERNATE_EXCHANGE, ARGUMENTS, COUNT_MAX, name, one_of, text, whole_number

Read: TypeAlias = Callable[[Value], Any]


def number_or_names(value: Value) -> Value:
    """The number, or the names, of the nodes that a queue is mirrored to."""
    if isinstance(value, list):
        return [name(item) for item in value]
    return whole_number(1, COUNT_MAX)(value)


def pattern(value: Value) -> str:
    """A regular expression."""
    expression: str = name(value)
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(f"'{expression}' is no regular expression: {error}") from None
    return expression


promotion = one_of("always", "when-synced")
OF_RABBITMQ_ONLY: dict[str, Read] = {
    "ha-mode": one_of("all", "exactly", "nodes"),
    "ha-params": number_or_names,
    "ha-sync-mode": one_of("manual", "automatic"),
    "ha-sync-batch-size": whole_number(1, COUNT_MAX),
    "ha-promote-on-shutdown": promotion,
    "ha-promote-on-failure": promotion,
}
OF_CLUSTERS: dict[str, Read] = {
    "replicas": whole_number(
        1, COUNT_MAX
    ),  # whether queues that are declared are replicated: not, if it is 1
    "target-group-size": whole_number(1, COUNT_MAX),  # RabbitMQ's, which has no effect: all copies are kept
}
FEDERATION_UPSTREAM = "federation-upstream"
FEDERATION_UPSTREAM_SET = "federation-upstream-set"
FEDERATION_UPSTREAM_PATTERN = "federation-upstream-pattern"
OF_FEDERATION: dict[str, Read] = {
    FEDERATION_UPSTREAM: name,
    FEDERATION_UPSTREAM_SET: name,
    FEDERATION_UPSTREAM_PATTERN: pattern,
}
"""Settings of exchanges and queues that are federated; `warren.relay` follows them."""

SETTINGS: dict[str, Read] = {
    **{rule.name: rule.check for rule in ARGUMENTS if rule.in_policies},
    ALTERNATE_EXCHANGE: text,
    **OF_RABBITMQ_ONLY,
    **OF_CLUSTERS,
    **OF_FEDERATION,
}
OPERATOR_SETTINGS: dict[str, Read] = {
    **{rule.name: rule.check for rule in ARGUMENTS if rule.in_operator_policies},
    **OF_CLUSTERS,
}


def check_definition(definition: Table, *, operator: bool) -> None:
    """406 if a setting is unknown, or its value makes no sense."""
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
    _check_federation(definition)


def _not_recognised(unknown: list[str]) -> str:
    if len(unknown) == 1:
        return f"{unknown[0]} is not a recognised policy setting"
    return f"{', '.join(unknown)} are not recognised policy settings"


def _check_delays(definition: Table) -> None:
    least, most = definition.get("retry-delay-min"), definition.get("retry-delay-max")
    if isinstance(least, int) and isinstance(most, int) and most < least:
        raise PreconditionFailed(f"retry-delay-max: lower than retry-delay-min, {least}")


def _check_federation(definition: Table) -> None:
    given = [setting for setting in OF_FEDERATION if setting in definition]
    if len(given) > 1:
        raise PreconditionFailed(f"cannot specify {' and '.join(given)} together")
