from __future__ import annotations

import pytest

from warren.broker.access import Permission
from warren.server.oauth.scopes import pattern_of, scope_of, user_with

READ, WRITE, CONFIGURE = Permission.READ, Permission.WRITE, Permission.CONFIGURE


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "order", False),
        ("orders", "orders2", False),
        ("*", "", True),
        ("*", "anything/at all", True),
        ("**", "", True),
        ("", "", True),
        ("", "x", False),
        ("a*", "a", True),
        ("a*", "ba", False),
        ("*a", "ba", True),
        ("*a", "ab", False),
        ("*ab", "abab", True),
        ("a*a", "a", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("%2F", "/", True),
        ("%2Fteam*", "/team-1", True),
        ("%2A", "*", True),
        ("%2A", "x", False),
        ("a.c", "abc", False),
        ("*", "two\nlines", True),
    ],
)
def test_star_stands_for_any_characters(pattern: str, text: str, expected: bool) -> None:
    assert pattern_of(pattern).matches(text) is expected


def test_many_stars_take_no_long_time() -> None:
    assert not pattern_of("*a" * 2_000 + "*b").matches("a" * 10_000)


@pytest.mark.parametrize(
    "text",
    [
        "read",
        "read:",
        "read:vhost",
        "read:v/n/k/more",
        "delete:v/n",
        "READ:v/n",
        ":v/n",
        "tag:administrator",
        "",
    ],
)
def test_scope_of_another_form_grants_nothing(text: str) -> None:
    assert scope_of(text) is None


def test_user_may_do_what_the_scopes_say() -> None:
    user = user_with("me", ["read:%2F/orders*", "write:team*/*", "tag:management", "tag:mine"])
    assert user.tags == {"management", "mine"}
    assert [user.may_enter(vhost) for vhost in ("/", "team1", "other")] == [True, True, False]
    assert user.allows(READ, "/", "orders.eu")
    assert not user.allows(READ, "/", "invoices")
    assert not user.allows(WRITE, "/", "orders.eu")
    assert user.allows(WRITE, "team2", "anything")
    assert not user.allows(CONFIGURE, "team2", "anything")


def test_routing_keys_are_free_unless_the_scope_names_a_pattern() -> None:
    user = user_with("me", ["write:%2F/free", "write:%2F/bound/eu.*", "read:%2F/bound/us.*"])
    assert user.allows_topic(WRITE, "/", "free", "anything")
    assert user.allows_topic(WRITE, "/", "bound", "eu.de")
    assert not user.allows_topic(WRITE, "/", "bound", "us.ny")
    assert user.allows_topic(READ, "/", "bound", "us.ny")
    assert not user.allows_topic(WRITE, "/", "unknown", "eu.de")
