"""Parameters: what components such as shovels keep in the broker, each of one vhost, or global, as in
RabbitMQ. The values are JSON; a component may register a check for its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias, Union

Json: TypeAlias = Union[  # noqa: UP007 - a recursive alias must be quoted inside, which | cannot do at run time
    bool, int, float, str, list["Json"], dict[str, "Json"], None
]
Check: TypeAlias = Callable[[str, str, Json], None]
"""Gets vhost, name and value of a parameter; raises 406 if they make no sense."""

CLUSTER_NAME = "cluster_name"  # the global parameter that names the cluster


def is_same(one: Json, other: Json) -> bool:
    """For Python 1, 1.0 and true are equal; as JSON they are not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class Parameters:
    """All parameters of a node. Policies and limits of vhosts are not among them, though RabbitMQ counts
    those as parameters.
    """

    def __init__(self) -> None:
        self.of_vhosts: dict[str, dict[tuple[str, str], Json]] = {}  # by vhost, then by component and name
        self.of_node: dict[str, Json] = {}  # the global ones, by name
        self.checks: dict[str, Check] = {}  # by component

    def register(self, component: str, check: Check) -> None:
        """Have this called for every new value of a component's parameters."""
        self.checks[component] = check

    def check(self, component: str, vhost: str, name: str, value: Json) -> None:
        check = self.checks.get(component)
        if check is not None:
            check(vhost, name, value)

    def of_vhost(self, vhost: str) -> dict[tuple[str, str], Json]:
        return self.of_vhosts.get(vhost, {})

    def find(self, component: str, vhost: str, name: str) -> Json:
        """KeyError if there is no such parameter."""
        return self.of_vhosts[vhost][component, name]

    def put(self, component: str, vhost: str, name: str, value: Json) -> bool:
        """Whether that changed anything."""
        parameters = self.of_vhosts.setdefault(vhost, {})
        if (component, name) in parameters and is_same(parameters[component, name], value):
            return False
        parameters[component, name] = value
        return True

    def remove(self, component: str, vhost: str, name: str) -> bool:
        """Whether it was there."""
        parameters = self.of_vhost(vhost)
        was_there = (component, name) in parameters
        parameters.pop((component, name), None)
        return was_there

    def forget_vhost(self, vhost: str) -> None:
        """The vhost is deleted."""
        self.of_vhosts.pop(vhost, None)
