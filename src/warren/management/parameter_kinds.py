"""Parameters as RabbitMQ counts them: besides those that components keep here, operator policies are the
component `operator_policy`, and the limits of a vhost are the component `vhost-limits`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warren.broker.commands import (
    ClearParameter,
    Command,
    DeletePolicy,
    PutPolicy,
    SetParameter,
    SetVhostLimits,
)
from warren.broker.node import Node
from warren.broker.parameters import Json
from warren.broker.policy import Policy
from warren.broker.vhost import Vhost
from warren.management.errors import BadRequest
from warren.management.fields import Fields
from warren.management.limit_names import VHOST_LIMITS, limits_told
from warren.management.policies import contents, policies_of, policy_command

POLICY, OPERATOR_POLICY, VHOST_LIMITS_COMPONENT = "policy", "operator_policy", "vhost-limits"
OF_ADMINISTRATORS = frozenset({OPERATOR_POLICY, VHOST_LIMITS_COMPONENT})
"""Components that only administrators change: their other endpoints ask for that as well."""
OF_BROKER = frozenset({POLICY, OPERATOR_POLICY, VHOST_LIMITS_COMPONENT})
"""Components that are no parts of their own."""
LIMITS = "limits"  # the name of the one parameter of the component `vhost-limits`


def parameters_of(node: Node, vhost: Vhost) -> Iterator[dict[str, Any]]:
    for (component, name), value in list(node.parameters.of_vhost(vhost.name).items()):
        yield _row(vhost, component, name, value)
    for policy in policies_of(vhost, operator=True):
        yield _row(vhost, OPERATOR_POLICY, policy.name, contents(policy))
    limits: dict[str, Any] = limits_told(vhost.limits)
    if limits:
        yield _row(vhost, VHOST_LIMITS_COMPONENT, LIMITS, limits)


def global_parameters_of(node: Node) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in node.parameters.of_node.items()]


def policy_row(vhost: Vhost, policy: Policy) -> dict[str, Any]:
    return _row(vhost, POLICY, policy.name, contents(policy))


def check_component(node: Node, component: str, name: str) -> None:
    """400 unless this broker has a component that looks at such a parameter: others are taken from files of
    definitions only, which may be RabbitMQ's with plugins of its own.
    """
    if component not in node.parameters.checks and component not in OF_BROKER:
        raise BadRequest(f"component {component} not found")
    if component == VHOST_LIMITS_COMPONENT and name != LIMITS:
        raise BadRequest(f"component {component} has no parameter but '{LIMITS}'")


def setting_command(vhost: str, component: str, name: str, fields: Fields) -> Command:
    """The command that sets a parameter to the field `value`."""
    if component == OPERATOR_POLICY:
        command: PutPolicy = policy_command(vhost, name, fields.fields("value"), operator=True)
        return command
    if component == VHOST_LIMITS_COMPONENT:
        return SetVhostLimits(vhost=vhost, **VHOST_LIMITS.values_in(fields.fields("value")))
    if component == POLICY:
        raise BadRequest(f"{fields.what}policies may not be set using this method")
    return SetParameter(vhost=vhost, component=component, name=name, value=fields.value("value"))


def clearing_command(vhost: str, component: str, name: str) -> Command:
    if component == OPERATOR_POLICY:
        return DeletePolicy(vhost=vhost, name=name, operator=True)
    if component == VHOST_LIMITS_COMPONENT:
        return SetVhostLimits(vhost=vhost)
    return ClearParameter(vhost=vhost, component=component, name=name)


def _row(vhost: Vhost, component: str, name: str, value: Json) -> dict[str, Any]:
    return {"value": value, "vhost": vhost.name, "component": component, "name": name}
