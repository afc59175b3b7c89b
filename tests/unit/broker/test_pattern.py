"""Regular expressions that users give: none can hold the broker."""

from __future__ import annotations

import pytest

from warren.broker.pattern import Pattern


@pytest.mark.parametrize(
    ("text", "name", "is_in"),
    [
        ("", "q", True),
        ("^q", "queue", True),
        ("^(?!amq\\.).*", "amq.direct", False),
        ("^(?!amq\\.).*", "orders", True),
        ("e$", "queue", True),
        ("(?i)QUEUE", "a queue", True),
    ],
)
def test_any_part_of_a_name_may_match(text: str, name: str, is_in: bool) -> None:
    assert Pattern(text).is_in(name) is is_in


@pytest.mark.parametrize("text", ["(", "[", "*", "(?P<a>x)(?P<a", "a{3,2}"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        Pattern(text)


def test_expression_that_takes_too_long_matches_nothing_and_is_not_tried_again() -> None:
    pattern = Pattern("^(a|aa)+$")
    assert pattern.is_in("a")
    assert not pattern.is_in("a" * 40 + "!")
    assert pattern.is_too_slow
    assert not pattern.is_in("a")
