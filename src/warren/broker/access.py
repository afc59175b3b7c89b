"""Users, and what they may do: permissions in vhosts, as patterns that names have to match."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from warren.amqp.errors import AccessRefused
from warren.broker.limits import NO_LIMITS, UserLimits
from warren.broker.passwords import PasswordHash
from warren.broker.pattern import pattern_of
from warren.broker.rate import Allowance, allowance

IMPERSONATOR = "impersonator"
DECISIONS_CACHED_MAX = 10_000


class Permission(Enum):
    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True)
class Permissions:
    """Regular expressions over the names of queues and exchanges; an empty one matches no name."""

    configure: str = ""
    write: str = ""
    read: str = ""

    def __post_init__(self) -> None:
        _check_patterns(self.configure, self.write, self.read)

    def pattern(self, permission: Permission) -> str:
        return str(getattr(self, permission.value))


@dataclass(frozen=True)
class TopicPermissions:
    """Regular expressions over routing keys, where `{username}` and `{vhost}` stand for their values."""

    write: str = ".*"
    read: str = ".*"

    def __post_init__(self) -> None:
        _check_patterns(self.write, self.read)


@dataclass
class User:
    """A user of the broker's own database. Other authenticators may bring users whose rights come from
    elsewhere: subclasses with answers of their own to `may_enter`, `allows` and `allows_topic`.
    """

    name: str
    password: PasswordHash | None
    """None for a user who cannot log in with a password."""
    tags: frozenset[str] = frozenset()
    permissions: dict[str, Permissions] = field(default_factory=dict)
    """By the name of the vhost; without an entry, the user may do nothing there."""
    topic_permissions: dict[tuple[str, str], TopicPermissions] = field(default_factory=dict)
    """By the names of vhost and exchange; without an entry, any routing key is allowed."""
    limits: UserLimits = NO_LIMITS
    publishing: Allowance | None = None
    """What all connections of the user together may publish; None without a limit."""
    consuming: Allowance | None = None
    """What all connections of the user together may be sent; None without a limit."""
    connections: int = 0
    """How many connections are open."""
    channels: int = 0
    """How many channels are open, on all connections."""

    def may_enter(self, vhost: str) -> bool:
        return vhost in self.permissions

    def allows(self, permission: Permission, vhost: str, name: str) -> bool:
        granted = self.permissions.get(vhost)
        return granted is not None and _matches(granted.pattern(permission), name)

    def allows_topic(self, permission: Permission, vhost: str, exchange: str, routing_key: str) -> bool:
        granted = self.topic_permissions.get((vhost, exchange))
        if granted is None:
            return True
        pattern = granted.write if permission is Permission.WRITE else granted.read
        for name, value in (("{username}", self.name), ("{vhost}", vhost)):
            pattern = pattern.replace(name, re.escape(value))
        return _matches(pattern, routing_key)

    def set_limits(self, limits: UserLimits, now: float) -> None:
        self.limits = limits
        self.publishing = allowance(limits.max_publish_rate, limits.max_publish_bytes, now)
        self.consuming = allowance(limits.max_consume_rate, limits.max_consume_bytes, now)


class TopicExchange(Protocol):
    """What topic permissions need to know of an exchange."""

    name: str
    is_topic: bool


class Access:
    """What one user may do in one vhost. Decisions are remembered until permissions change."""

    def __init__(self, user: User, vhost: str) -> None:
        self.user = user
        self.vhost = vhost
        self.decisions: dict[tuple[Permission, str], bool] = {}

    def forget(self) -> None:
        self.decisions.clear()

    def check(self, permission: Permission, kind: str, name: str) -> None:
        if not self.allows(permission, name):
            raise AccessRefused(
                f"{permission.value} access to {kind} '{name}' in vhost '{self.vhost}' "
                f"refused for user '{self.user.name}'"
            )

    def allows(self, permission: Permission, name: str) -> bool:
        key = (permission, name)
        known = self.decisions.get(key)
        if known is None:
            if len(self.decisions) >= DECISIONS_CACHED_MAX:
                self.decisions.clear()
            known = self.user.allows(permission, self.vhost, name or "amq.default")
            self.decisions[key] = known
        return known

    def check_topic(self, permission: Permission, exchange: TopicExchange, routing_key: str) -> None:
        """Raise unless the user may publish to a topic exchange with this routing key, or bind with it."""
        if exchange.is_topic and not self.user.allows_topic(
            permission, self.vhost, exchange.name, routing_key
        ):
            raise AccessRefused(
                f"{permission.value} access to topic '{routing_key}' in exchange '{exchange.name}' "
                f"in vhost '{self.vhost}' refused for user '{self.user.name}'"
            )


def _matches(pattern: str, name: str) -> bool:
    return pattern_of(pattern or "^$").is_in(name)


def _check_patterns(*patterns: str) -> None:
    for pattern in patterns:
        pattern_of(pattern)
