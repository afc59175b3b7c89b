"""Which node does what one node of a cluster does for all."""

from __future__ import annotations

import pytest

from warren.cluster.config import StoreId
from warren.cluster.known_stores import DRAINING, IN, REMOVED, NodeFacts
from warren.server.cluster.first_node import first_node

ALL_IN = {"a": IN, "b": IN, "c": IN}


@pytest.mark.parametrize(
    ("states", "there", "first"),
    [
        (ALL_IN, "abc", "a"),
        (ALL_IN, "bc", "b"),
        (ALL_IN, "c", ""),  # this node may be the one that is cut off
        ({"a": IN, "b": IN}, "b", "b"),
        ({"a": IN}, "a", "a"),
        (ALL_IN | {"a": DRAINING}, "abc", "b"),
        (dict.fromkeys("abc", DRAINING), "abc", "a"),
        (ALL_IN | {"a": REMOVED, "b": REMOVED}, "ac", "c"),
        ({}, "a", ""),  # it does not know the others yet
    ],
)
def test_it_is_the_first_by_name_of_those_that_are_there(
    states: dict[str, str], there: str, first: str
) -> None:
    nodes = {name: NodeFacts(StoreId(name), state, frozenset()) for name, state in states.items()}
    assert first_node(nodes, [StoreId(name) for name in there]) == first
