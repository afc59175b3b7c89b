"""The users among the definitions that are taken over."""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.passwords import RABBIT_SHA256, PasswordHash
from warren.client.api import Row
from warren.client.http_url import HttpUrl

ADMINISTRATOR = "administrator"


def without_lockout(definitions: Row, to: HttpUrl, remark: Callable[[str], None]) -> Row:
    """The definitions, but for the user that we log in with here, if that user had another password then, or
    was no administrator any more: the takeover could not go on.
    """
    users = definitions.get("users")
    if not isinstance(users, list):
        return definitions
    kept = [row for row in users if row.get("name") != to.user or _lets_in(row, to.password or "")]
    if len(kept) < len(users):
        remark(f"user '{to.user}' stays as it is here, since this command logs in with it")
    return {**definitions, "users": kept}


def _lets_in(user: Row, password: str) -> bool:
    tags = user.get("tags") or []
    words = tags.split(",") if isinstance(tags, str) else tags
    try:
        known = PasswordHash(user.get("hashing_algorithm") or RABBIT_SHA256, user.get("password_hash") or "")
    except ValueError:
        return False
    return ADMINISTRATOR in words and known.verify(password.encode())
