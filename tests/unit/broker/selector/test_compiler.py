from __future__ import annotations

import pytest

from tests.unit.broker.selector.truth import Truth, of_headers
from warren.broker.selector import Selector, compile_selector

TRUTHS = {True: "yes", False: "no", None: "missing"}


@pytest.mark.parametrize("left", TRUTHS)
@pytest.mark.parametrize("right", TRUTHS)
def test_and_or_follow_the_tables_of_three_values(left: Truth, right: Truth) -> None:
    both, either = f"{TRUTHS[left]} AND {TRUTHS[right]}", f"{TRUTHS[left]} OR {TRUTHS[right]}"
    values = {left, right}
    assert of_headers(both) is (False if False in values else None if None in values else True)
    assert of_headers(either) is (True if True in values else None if None in values else False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("void IS NULL", True),
        ("size IS NULL", False),
        ("no IS NOT NULL", True),
        ("raw IS NOT NULL", True),
        ("list IS NOT NULL", True),
        ("table IS NOT NULL", True),
        ("size / 0 IS NULL", True),
        ("(missing = 1) IS NULL", True),
        ("NOT missing IS NULL", False),
    ],
)
def test_is_null_is_never_unknown(text: str, expected: bool) -> None:
    assert of_headers(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size BETWEEN 7 AND 7", True),
        ("size BETWEEN 8 AND 9", False),
        ("size BETWEEN 9 AND 6", False),
        ("size NOT BETWEEN 8 AND 9", True),
        ("size BETWEEN b AND a AND yes", True),
        ("size BETWEEN 8 AND missing", False),
        ("size BETWEEN missing AND 6", False),
        ("size BETWEEN 7 AND missing", None),
        ("size NOT BETWEEN 7 AND missing", None),
        ("region BETWEEN 'a' AND 'f'", True),
        ("size BETWEEN 3 + 4 AND 2 * 4", True),
    ],
)
def test_between_is_at_least_and_at_most(text: str, expected: Truth) -> None:
    assert of_headers(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("region IN ('eu', 'us')", True),
        ("region IN ('us')", False),
        ("region NOT IN ('us')", True),
        ("region NOT IN ('eu')", False),
        ("size IN (1, 7.0)", True),
        ("minus IN (-7)", True),
        ("size IN (+7, - -8)", True),
        ("yes IN (TRUE)", True),
        ("yes IN (FALSE)", False),
        ("size IN ('a', 7)", True),
        ("size NOT IN ('a', 8)", None),
        ("size + 1 IN (8)", True),
    ],
)
def test_in_is_equal_to_one_of_them(text: str, expected: Truth) -> None:
    assert of_headers(text) is expected


@pytest.mark.parametrize(
    ("text", "names", "needs_headers"),
    [
        ("priority > 3 AND region = 'eu'", {"priority", "region"}, True),
        ("amqp.priority > 3", {"amqp.priority"}, False),
        ("JMSPriority > 3", {"JMSPriority"}, True),
        ("amqp.priority > 3 AND a IN (1)", {"amqp.priority", "a"}, True),
        ("TRUE", set(), False),
        ("NOT -a + b * c BETWEEN d AND e OR (f LIKE 'x' AND g IS NULL)", set("abcdefg"), True),
    ],
)
def test_selector_tells_what_it_needs(text: str, names: set[str], needs_headers: bool) -> None:
    selector = compile_selector(text)
    assert isinstance(selector, Selector)
    assert (selector.text, selector.names, selector.needs_headers) == (text, frozenset(names), needs_headers)
