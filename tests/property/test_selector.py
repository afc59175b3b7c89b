"""Selectors against an interpreter that follows the definitions, LIKE against a matcher that tries all,
and any text at all.
"""

from __future__ import annotations

import math
import operator
import string
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, Value
from warren.broker.selector import SelectorError, compile_selector
from warren.broker.selector.lexer import KEYWORDS, TEXT_LENGTH_MAX
from warren.broker.selector.like import Pattern

SECONDS_MAX = 20

NAMES = ["a", "b", "x-c", "_d"]
OR, AND, NOT, TEST, SUM, PRODUCT, FACTOR, PRIMARY = range(8)
DEPTH = 3


@dataclass(frozen=True)
class Term:
    """A piece of a selector: its text, how strongly that holds together, and what it means."""

    text: str
    level: int
    value: Callable[[Table], Any]

    def __repr__(self) -> str:
        return self.text

    def at(self, level: int) -> str:
        """The text where nothing weaker may stand."""
        return self.text if self.level >= level else f"({self.text})"


def kind(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case _:
            return "none"


def compare(sign: str, left: Any, right: Any) -> bool | None:
    if kind(left) != kind(right) or kind(left) == "none":
        return None
    if kind(left) == "boolean" and sign not in {"=", "<>", "!="}:
        return None
    less, equal = bool(left < right), bool(left == right)
    meaning = {"=": equal, "<": less, "<=": less or equal}
    meaning |= {"<>": not equal, "!=": not equal, ">=": not less, ">": not less and not equal}
    return meaning[sign]


def calculate(sign: str, left: Any, right: Any) -> Any:
    if kind(left) != "number" or kind(right) != "number":
        return None
    if sign != "/":
        return {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right)
    if right == 0:
        return None
    return math.trunc(Fraction(left, right)) if isinstance(left * right, int) else left / right


def invert(value: object) -> bool | None:
    return not value if isinstance(value, bool) else None


def conjoin(left: object, right: object) -> bool | None:
    if left is False or right is False:
        return False
    return True if left is True and right is True else None


def disjoin(left: object, right: object) -> bool | None:
    return invert(conjoin(invert(left), invert(right)))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


texts = st.text("ab%_'", max_size=4)
plain_numbers = st.integers(0, 20) | st.integers(0, 20).map(lambda quarters: quarters / 4)
numbers = plain_numbers | plain_numbers.map(operator.neg)
opaque: st.SearchStrategy[Value] = st.sampled_from([b"ab", [1]])
headers: st.SearchStrategy[Table] = st.dictionaries(
    st.sampled_from(NAMES), st.none() | st.booleans() | numbers | texts | opaque
)


def spelled(value: object) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


def constant(value: object) -> Term:
    return Term(spelled(value), PRIMARY, lambda _headers: value)


names = st.sampled_from(NAMES).map(lambda name: Term(name, PRIMARY, lambda headers: headers.get(name)))
signs = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


def calculated(left: Term, sign: str, right: Term) -> Term:
    level = SUM if sign in "+-" else PRODUCT
    text = f"{left.at(level)} {sign} {right.at(level + 1)}"
    return Term(text, level, lambda h: calculate(sign, left.value(h), right.value(h)))


def signed(sign: str, operand: Term) -> Term:
    return Term(f"{sign} {operand.at(FACTOR)}", FACTOR, lambda h: calculate(sign, 0, operand.value(h)))


def compared(left: Term, sign: str, right: Term) -> Term:
    text = f"{left.at(SUM)} {sign} {right.at(SUM)}"
    return Term(text, TEST, lambda h: compare(sign, left.value(h), right.value(h)))


def between(operand: Term, low: Term, high: Term) -> Term:
    def value(h: Table) -> bool | None:
        found = operand.value(h)
        return conjoin(compare(">=", found, low.value(h)), compare("<=", found, high.value(h)))

    return Term(f"{operand.at(SUM)} BETWEEN {low.at(SUM)} AND {high.at(SUM)}", TEST, value)


def among(operand: Term, choices: list[Any]) -> Term:
    def value(h: Table) -> bool | None:
        result: bool | None = False
        for choice in choices:
            result = disjoin(result, compare("=", operand.value(h), choice))
        return result

    return Term(f"{operand.at(SUM)} IN ({', '.join(map(spelled, choices))})", TEST, value)


def like(operand: Term, pattern: str) -> Term:
    def value(h: Table) -> bool | None:
        found = operand.value(h)
        return is_like(found, pattern) if isinstance(found, str) else None

    return Term(f"{operand.at(SUM)} LIKE {quoted(pattern)}", TEST, value)


def is_null(operand: Term) -> Term:
    return Term(f"{operand.at(SUM)} IS NULL", TEST, lambda h: operand.value(h) is None)


def other_way(test: Term) -> Term:
    """x NOT IN (…) for x IN (…), and so on; as it is if the text has more than one such word."""
    words = [word for word in ("BETWEEN", "IN", "LIKE", "NULL") if f" {word}" in test.text]
    if len(words) != 1 or test.text.count(words[0]) != 1:
        return test
    text = test.text.replace(f" {words[0]}", f" NOT {words[0]}")
    return Term(text, TEST, lambda h: invert(test.value(h)))


def inverted(operand: Term) -> Term:
    return Term(f"NOT {operand.at(NOT)}", NOT, lambda h: invert(operand.value(h)))


def joined(left: Term, level: int, right: Term) -> Term:
    word, join = ("AND", conjoin) if level == AND else ("OR", disjoin)
    text = f"{left.at(level)} {word} {right.at(level)}"
    return Term(text, level, lambda h: join(left.value(h), right.value(h)))


def values(depth: int) -> st.SearchStrategy[Term]:
    leaves = names | (plain_numbers | texts | st.booleans()).map(constant)
    if depth == 0:
        return leaves
    inner = values(depth - 1)
    return st.one_of(
        leaves,
        st.builds(calculated, inner, st.sampled_from("+-*/"), inner),
        st.builds(signed, st.sampled_from("+-"), inner),
        conditions(depth - 1),
    )


def conditions(depth: int) -> st.SearchStrategy[Term]:
    leaves = names | st.booleans().map(constant)
    if depth == 0:
        return leaves
    operands, inner = values(depth - 1), conditions(depth - 1)
    choices = st.lists(numbers | texts | st.booleans(), min_size=1, max_size=3)
    tests = st.one_of(
        st.builds(between, operands, operands, operands),
        st.builds(among, operands, choices),
        st.builds(like, operands, texts),
        st.builds(is_null, operands),
    )
    return st.one_of(
        leaves,
        st.builds(compared, operands, signs, operands),
        tests,
        tests.map(other_way),
        st.builds(inverted, inner),
        st.builds(joined, inner, st.sampled_from([AND, OR]), inner),
    )


@given(conditions(DEPTH), st.lists(headers, min_size=1, max_size=5))
def test_selector_says_what_the_definitions_say(term: Term, messages: list[Table]) -> None:
    selector, inverse = compile_selector(term.text), compile_selector(inverted(term).text)
    for message in messages:
        expected = term.value(message)
        properties = BasicProperties(headers=message)
        assert selector.matches(properties) is (expected is True)
        assert inverse.matches(properties) is (expected is False)


def is_like(text: str, pattern: str, escape: str | None = None) -> bool:
    @cache
    def matches(at: int, place: int) -> bool:
        if at == len(pattern):
            return place == len(text)
        if pattern[at] == escape:
            return text[place : place + 1] == pattern[at + 1] and matches(at + 2, place + 1)
        if pattern[at] == "%":
            return matches(at + 1, place) or (place < len(text) and matches(at, place + 1))
        return place < len(text) and pattern[at] in {"_", text[place]} and matches(at + 1, place + 1)

    return matches(0, 0)


@given(st.text("ab_%", max_size=12), st.text("ab", max_size=16))
@example("a_%_%b", "aab")
def test_like_matches_what_trying_everything_matches(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) is is_like(text, pattern)


@given(st.text("a_%!", max_size=8), st.text("a_%!", max_size=8), st.sampled_from("!_%a"))
def test_like_with_an_escape_matches_what_trying_everything_matches(
    pattern: str, text: str, escape: str
) -> None:
    try:
        compiled = Pattern(pattern, escape)
    except ValueError:
        assert (len(pattern) - len(pattern.rstrip(escape))) % 2 == 1
    else:
        assert compiled.matches(text) is is_like(text, pattern, escape)


words = st.sampled_from(
    [
        *sorted(KEYWORDS),
        *"=<>+-*/(),!",
        "<>",
        "!=",
        "<=",
        ">=",
        "'x'",
        "''",
        '"y"',
        "a",
        "x-c",
        "1",
        "0x1",
        "2.5",
    ]
)
nonsense = st.one_of(
    st.text(max_size=200),
    st.text(string.printable, max_size=200),
    st.lists(words, max_size=40).map(" ".join),
    st.lists(words, max_size=40).map("".join),
    st.builds(lambda word, times: word * times, words | st.text(max_size=5), st.integers(0, TEXT_LENGTH_MAX)),
)


def error_of(text: str) -> str | None:
    try:
        compile_selector(text)
    except SelectorError as error:
        return str(error)
    return None


@pytest.mark.timeout(SECONDS_MAX)
@given(nonsense, headers)
@example("NOT " * 1000 + "a", {})
@example("(" * TEXT_LENGTH_MAX, {})
@example("'" * (TEXT_LENGTH_MAX - 1), {})
@example("a-" * (TEXT_LENGTH_MAX // 2), {})
@example("a*" * 500 + "a>1", {"a": 2**63 - 1})
def test_any_text_is_a_selector_or_an_error_of_one_line(text: str, message: Table) -> None:
    error = error_of(text)
    if error is None:
        assert compile_selector(text).matches(BasicProperties(headers=message)) in {True, False}
    else:
        assert error.isprintable()
