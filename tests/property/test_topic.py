"""The topic trie against a matcher that follows the definition word by word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.exchange.routing import bind, routed
from warren.broker.exchange.topic import Topic

words = st.sampled_from(["a", "b", "", "aa"])
patterns = st.lists(st.sampled_from(["*", "#"]) | words, max_size=6).map(".".join)
keys = st.lists(words | st.sampled_from(["*", "#"]), max_size=6).map(".".join)


def split(key: str) -> list[str]:
    return key.split(".") if key else []


def matches(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    head, rest = pattern[0], pattern[1:]
    if head == "#":
        return any(matches(rest, key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and head in {"*", key[0]} and matches(rest, key[1:])


@given(st.lists(patterns, max_size=8), st.lists(keys, min_size=1, max_size=6), st.data())
def test_trie_finds_what_the_definition_says_before_and_after_unbinding(
    bound: list[str], asked: list[str], data: st.DataObject
) -> None:
    router = Topic({})
    made = [bind(router, f"{number}", pattern) for number, pattern in enumerate(bound)]
    removed = data.draw(st.sets(st.sampled_from(range(len(made))))) if made else set()
    for gone in (set[int](), removed):
        for number in gone:
            router.unbind(made[number])
        for key in asked:
            expected = sorted(
                f"{number}"
                for number, pattern in enumerate(bound)
                if number not in gone and matches(split(pattern), split(key))
            )
            assert routed(router, key) == expected
