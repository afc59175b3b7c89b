"""The limits of vhosts and users by the names that RabbitMQ gives them: `max-connections`. Those of rates,
which RabbitMQ has not, are named alike: `max-publish-rate`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from warren.broker.limits import NO_LIMIT, UserLimits, VhostLimits
from warren.management.errors import BadRequest
from warren.management.fields import Fields


@dataclass(frozen=True)
class LimitNames:
    """The limits that a vhost or a user may have, by RabbitMQ's names."""

    kind: type[VhostLimits | UserLimits]

    def known(self) -> dict[str, str]:
        """The names of our fields, by those of RabbitMQ."""
        return {field.name.replace("_", "-"): field.name for field in fields(self.kind)}

    def has(self, name: str) -> bool:
        return name in self.known()

    def field_of(self, name: str) -> str:
        known = self.known()
        if name not in known:
            raise BadRequest(f"unknown limit '{name}': expected one of {', '.join(known)}")
        return known[name]

    def values_in(self, given: Fields) -> dict[str, int]:
        """The limits in an object, by the names of our fields."""
        return {self.field_of(name): limit_in(given, name) for name in given.given}


def limit_in(given: Fields, name: str) -> int:
    """As in RabbitMQ, any negative number stands for no limit."""
    return max(given.number(name), NO_LIMIT)


VHOST_LIMITS, USER_LIMITS = LimitNames(VhostLimits), LimitNames(UserLimits)


OF_RABBITMQ = frozenset({"max-connections", "max-channels"})
"""The limits of users that RabbitMQ has. It refuses files with others."""


def limits_told(limits: VhostLimits | UserLimits) -> dict[str, int]:
    """The limits that are set, by RabbitMQ's names."""
    return {name.replace("_", "-"): value for name, value in asdict(limits).items() if value is not None}
