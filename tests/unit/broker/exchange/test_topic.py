from __future__ import annotations

import pytest

from tests.unit.broker.exchange.routing import bind, routed, work_of
from warren.broker.exchange.topic import Topic

WORDS_MAX = 256  # in a routing key of 255 dots


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "b.a", "", "a.B"]),
        ("*", ["a", "*", "#"], ["", "a.b"]),
        ("*.b", ["a.b", ".b", "#.b"], ["b", "a.a.b", "a.b."]),
        ("#", ["", "a", "a.b", ".", "#", "*"], []),
        ("#.#", ["", "a", "a.b", "..."], []),
        ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b.a", "ab"]),
        ("#.a", ["a", "b.a", "a.a", ".a"], ["", "a.b"]),
        ("a.#.b", ["a.b", "a.x.b", "a.b.c.b", "a.b.b"], ["a", "b", "a.b.c"]),
        ("#.b.#", ["b", "a.b.c", "b.b", "x.y.b"], ["", "a", "a.c"]),
        ("*.#", ["a", "a.b", "."], [""]),
        ("#.*", ["a", "a.b"], [""]),
        ("#.*.#.*", ["a.b", "a.b.c"], ["", "a"]),
        ("a.*.#.c", ["a.b.c", "a.b.x.y.c", "a.c.c"], ["a.c", "a.b"]),
        ("", [""], ["a", ".", "#"]),
        (".", ["."], ["", "a", "..", "a.b"]),
        ("a..b", ["a..b"], ["a.b", "a.x.b"]),
        ("a.*.b", ["a..b", "a.x.b"], ["a.b"]),
        ("a#", ["a#"], ["a", "ab"]),  # only a word of its own stands for others
        ("*a", ["*a"], ["ba"]),
    ],
)
def test_pattern_matches_by_words(pattern: str, matching: list[str], others: list[str]) -> None:
    router = Topic({})
    bind(router, "q", pattern)
    keys = [*matching, *others]
    assert [key for key in keys if routed(router, key)] == matching


def test_key_leads_to_every_pattern_that_matches() -> None:
    router = Topic({})
    for pattern in ("a.b", "a.*", "#", "b.#", "*.b", "a.#"):
        bind(router, pattern, pattern)
    assert routed(router, "a.b") == sorted(["a.b", "a.*", "#", "*.b", "a.#"])


def test_destinations_with_one_pattern_are_unbound_one_by_one() -> None:
    router = Topic({})
    bind(router, "a", "x.#")
    gone = bind(router, "b", "x.#")
    router.unbind(gone)
    assert routed(router, "x.y") == ["a"]


def test_unbinding_leaves_longer_and_shorter_patterns_in_place() -> None:
    router = Topic({})
    for pattern in ("a", "a.b.c", "a.x"):
        bind(router, pattern, pattern)
    router.unbind(bind(router, "gone", "a.b"))
    assert [routed(router, key) for key in ("a", "a.b", "a.b.c", "a.x")] == [["a"], [], ["a.b.c"], ["a.x"]]


def test_last_unbinding_leaves_no_node_behind() -> None:
    router = Topic({})
    made = [bind(router, "q", pattern) for pattern in ("a.b.c", "a.#", "", "*.x.#")]
    for each in made:
        router.unbind(each)
    assert router.root.children == {}
    assert router.root.bindings == {}


def test_every_step_of_a_walk_is_work() -> None:
    router = Topic({})
    bind(router, "q", ".".join(["#", "a"] * 60))
    assert work_of(router, ".".join(["a"] * (WORDS_MAX // 2))) > 60 * WORDS_MAX


def test_steps_of_a_walk_are_bounded_by_nodes_times_words() -> None:
    """Without the bound, such a pattern over such a key takes more steps than there are atoms."""
    router = Topic({})
    bind(router, "q", ".".join(["#", "a"] * 60))
    assert routed(router, ".".join(["a"] * (WORDS_MAX // 2))) == ["q"]
    assert routed(router, ".".join(["a"] * (WORDS_MAX // 2 - 1) + ["b"])) == []
