"""Who may do what: users, their permissions in vhosts, and the patterns these are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Protocol

from warren.amqp.errors import AccessRefused
from warren.broker.limits import NO_LIMITS, UserLimits
from warren.broker.passwords import PasswordHash
from warren.broker.rate import Allowance, allowance

IMPERSONATOR = "impersonator"
PATTERNS_CACHED_MAX = 1_000
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
    """`connections` and `channels` are how many are open now. All of them share `publishing` and `consuming`,
    which are there if there is a limit.
    """

    name: str
    password: PasswordHash | None
    tags: frozenset[str] = frozenset()
    permissions: dict[str, Permissions] = field(default_factory=dict)
    topic_permissions: dict[tuple[str, str], TopicPermissions] = field(default_factory=dict)
    limits: UserLimits = NO_LIMITS
    publishing: Allowance | None = None
    consuming: Allowance | None = None
    connections: int = 0
    channels: int = 0

    def set_limits(self, limits: UserLimits, now: float) -> None:
        self.limits = limits
        self.publishing = allowance(limits.max_publish_rate, limits.max_publish_bytes, now)
        self.consuming = allowance(limits.max_consume_rate, limits.max_consume_bytes, now)


class TopicExchange(Protocol):
    """An exchange, as far as topic permissions know it."""

    name: str
    is_topic: bool


class Access:
    """One user in one vhost: what is allowed, remembered until permissions change."""

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
            granted = self.user.permissions.get(self.vhost)
            known = granted is not None and _matches(granted.pattern(permission), name or "amq.default")
            self.decisions[key] = known
        return known

    def check_topic(self, permission: Permission, exchange: TopicExchange, routing_key: str) -> None:
        """Whether a message may go to a topic exchange with this key, or a binding to it have it."""
        granted = self.user.topic_permissions.get((self.vhost, exchange.name))
        if granted is None or not exchange.is_topic:
            return
        pattern = granted.write if permission is Permission.WRITE else granted.read
        for name, value in (("{username}", self.user.name), ("{vhost}", self.vhost)):
            pattern = pattern.replace(name, re.escape(value))
        if not _matches(pattern, routing_key):
            raise AccessRefused(
                f"{permission.value} access to topic '{routing_key}' in exchange '{exchange.name}' "
                f"in vhost '{self.vhost}' refused for user '{self.user.name}'"
            )


def _matches(pattern: str, name: str) -> bool:
    return compile_pattern(pattern or "^$").search(name) is not None


def _check_patterns(*patterns: str) -> None:
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except re.error as error:
            raise ValueError(f"'{pattern}' is not a regular expression: {error}") from error


@lru_cache(PATTERNS_CACHED_MAX)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
