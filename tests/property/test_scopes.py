"""Patterns of scopes against regular expressions, which are a simple model of them."""

from __future__ import annotations

import re
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from warren.broker.access import Permission
from warren.server.oauth.scopes import pattern_of, user_with

LETTERS = "ab/*%."
TEXTS = st.text(LETTERS, max_size=8)
PIECES = st.lists(st.text(LETTERS, max_size=3), min_size=1, max_size=4)
PERMISSIONS = st.sampled_from(list(Permission))
SCOPES = st.lists(st.tuples(PERMISSIONS, PIECES, PIECES, st.none() | PIECES), max_size=4)


def written(pieces: list[str]) -> str:
    """The pattern in which stars stand between these pieces."""
    return "*".join(quote(piece, safe="") for piece in pieces)


def model(pieces: list[str], text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pieces)), text, re.DOTALL) is not None


@given(PIECES, TEXTS)
def test_pattern_matches_as_its_regular_expression(pieces: list[str], text: str) -> None:
    assert pattern_of(written(pieces)).matches(text) is model(pieces, text)


@given(SCOPES, PERMISSIONS, TEXTS, TEXTS, TEXTS)
def test_scopes_grant_what_one_of_them_grants(
    scopes: list[tuple[Permission, list[str], list[str], list[str] | None]],
    permission: Permission,
    vhost: str,
    name: str,
    key: str,
) -> None:
    texts = [
        f"{granted.value}:{written(vhosts)}/{written(names)}" + ("" if keys is None else f"/{written(keys)}")
        for granted, vhosts, names, keys in scopes
    ]
    user = user_with("me", texts)
    in_vhost = [scope for scope in scopes if model(scope[1], vhost)]
    of_name = [scope for scope in in_vhost if scope[0] is permission and model(scope[2], name)]
    of_key = [scope for scope in of_name if scope[3] is None or model(scope[3], key)]
    assert user.may_enter(vhost) is bool(in_vhost)
    assert user.allows(permission, vhost, name) is bool(of_name)
    assert user.allows_topic(permission, vhost, name, key) is bool(of_key)
