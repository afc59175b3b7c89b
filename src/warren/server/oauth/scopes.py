"""Scopes of a token, in RabbitMQ's form, without their prefix:

    read:<vhost>/<name>                 likewise write: and configure:
    write:<vhost>/<name>/<routing key>
    tag:administrator

Each part is a pattern in which `*` stands for any characters, and `%2F` for a slash. Scopes of any other form
grant nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from warren.broker.access import Permission, User

TAG = "tag:"
ANYTHING = "*"
PARTS_MIN, PARTS_MAX = 2, 3
PERMISSIONS = {permission.value: permission for permission in Permission}


@dataclass(frozen=True)
class Pattern:
    """What stands between the stars: a text without a star has one part, and has to be equal."""

    parts: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Takes the leftmost place for each part, so that the time does not grow with the number of stars."""
        first, *rest = self.parts
        if not rest:
            return text == first
        *middle, last = rest
        if not text.startswith(first) or len(text) < len(first) + len(last) or not text.endswith(last):
            return False
        position, end = len(first), len(text) - len(last)
        for part in middle:
            found = text.find(part, position, end)
            if found < 0:
                return False
            position = found + len(part)
        return True


def pattern_of(text: str) -> Pattern:
    return Pattern(tuple(unquote(part) for part in text.split(ANYTHING)))


@dataclass(frozen=True)
class Scope:
    """One permission that a token grants."""

    permission: Permission
    vhost: Pattern
    name: Pattern
    routing_key: Pattern


def scope_of(text: str) -> Scope | None:
    """The scope that a text stands for; None if it grants no permission."""
    kind, _, patterns = text.partition(":")
    parts = patterns.split("/")
    if kind not in PERMISSIONS or not PARTS_MIN <= len(parts) <= PARTS_MAX:
        return None
    vhost, name, routing_key = map(pattern_of, [*parts, ANYTHING][:PARTS_MAX])
    return Scope(PERMISSIONS[kind], vhost, name, routing_key)


@dataclass
class TokenUser(User):
    """A user who may do what the scopes of a token say. The node's own users do not know it."""

    scopes: tuple[Scope, ...] = field(default=())

    def may_enter(self, vhost: str) -> bool:
        return any(scope.vhost.matches(vhost) for scope in self.scopes)

    def allows(self, permission: Permission, vhost: str, name: str) -> bool:
        return any(
            scope.permission is permission and scope.vhost.matches(vhost) and scope.name.matches(name)
            for scope in self.scopes
        )

    def allows_topic(self, permission: Permission, vhost: str, exchange: str, routing_key: str) -> bool:
        return any(
            scope.permission is permission
            and scope.vhost.matches(vhost)
            and scope.name.matches(exchange)
            and scope.routing_key.matches(routing_key)
            for scope in self.scopes
        )


def user_with(name: str, texts: Iterable[str]) -> TokenUser:
    """A user with the permissions and tags that these scopes grant."""
    given = list(texts)
    scopes = (scope_of(text) for text in given)
    return TokenUser(
        name,
        password=None,
        tags=frozenset(text.removeprefix(TAG) for text in given if text.startswith(TAG)),
        scopes=tuple(scope for scope in scopes if scope is not None),
    )
