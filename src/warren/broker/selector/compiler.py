"""Compiles the tree of a selector to closures.

A closure takes the properties and the headers of a message, and returns a value: see `values`. A condition is
TRUE, FALSE or unknown, as in SQL-92. Unknown is None; every value that is no boolean counts as unknown, too.

    NOT unknown        unknown
    unknown AND FALSE  FALSE        unknown AND anything else  unknown
    unknown OR TRUE    TRUE         unknown OR anything else   unknown

A message matches only if the whole condition is TRUE. Most comparisons are with a literal: these have a
faster closure of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.selector import tree as t
from warren.broker.selector.like import Pattern
from warren.broker.selector.names import Evaluate, is_property, resolve
from warren.broker.selector.parser import parse
from warren.broker.selector.values import (
    ARITHMETIC,
    COMPARISONS,
    EQUAL_TYPES,
    MIRRORED,
    NO_TYPES,
    Operator,
    Types,
    calculate,
    compare,
)

NO_HEADERS: Table = {}


class Selector:
    """A compiled condition. `names` are the names in it; `needs_headers`: any of them may be a header's."""

    __slots__ = ("_evaluate", "names", "needs_headers", "text")

    def __init__(self, text: str) -> None:
        compiler = _Compiler()
        self.text = text
        self._evaluate = compiler.compile(parse(text))
        self.names = frozenset(compiler.names)
        self.needs_headers = not all(map(is_property, self.names))

    def matches(self, properties: BasicProperties) -> bool:
        """Whether a message with these properties meets the condition."""
        return self._evaluate(properties, properties.headers or NO_HEADERS) is True

    def __repr__(self) -> str:
        return f"<Selector {self.text!r}>"


def compile_selector(text: str) -> Selector:
    """The selector in a text; SelectorError, with what is wrong and where, if there is none."""
    return Selector(text)


class _Compiler:
    """Compiles one tree, and gathers the names in it."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def compile(self, node: t.Node) -> Evaluate:
        match node:
            case t.Name(name):
                self.names.add(name)
                return resolve(name)
            case t.Literal(value):
                return _literal(value)
            case t.Comparison():
                return self.comparison(node)
            case t.And() | t.Or() | t.Between() | t.Arithmetic():
                return self.several(node)
            case _:
                return self.unary(node, self.compile(node.operand))

    def compile_all(self, nodes: Iterable[t.Node]) -> list[Evaluate]:
        return list(map(self.compile, nodes))

    def several(self, node: t.And | t.Or | t.Between | t.Arithmetic) -> Evaluate:
        match node:
            case t.And(terms):
                return _and(self.compile_all(terms))
            case t.Or(terms):
                return _or(self.compile_all(terms))
            case t.Between(operand, low, high):
                return _between(*self.compile_all((operand, low, high)))
            case t.Arithmetic(first, rest):
                operations = [(ARITHMETIC[sign], self.compile(operand)) for sign, operand in rest]
                return _arithmetic(self.compile(first), operations)

    def unary(self, node: t.Not | t.IsNull | t.In | t.Like | t.Signed, operand: Evaluate) -> Evaluate:
        match node:
            case t.Not():
                return _not(operand)
            case t.IsNull():
                return _is_null(operand)
            case t.In():
                return _in(operand, node.choices)
            case t.Like():
                return _like(operand, node.pattern)
            case t.Signed():
                return _arithmetic(_literal(0), [(ARITHMETIC["-" if node.negative else "+"], operand)])

    def comparison(self, node: t.Comparison) -> Evaluate:
        sign, left, right = node.sign, node.left, node.right
        if isinstance(left, t.Literal):
            sign, left, right = MIRRORED[sign], right, left
        operate, types = COMPARISONS[sign]
        if isinstance(right, t.Literal):
            return _compare_literal(self.compile(left), operate, right.value, types)
        return _compare(self.compile(left), operate, self.compile(right), types)


def _literal(value: t.Constant) -> Evaluate:
    return lambda _properties, _headers: value


def _compare_literal(left: Evaluate, operate: Operator, value: t.Constant, types: Types) -> Evaluate:
    comparable = types.get(type(value), NO_TYPES)

    def evaluate(properties: BasicProperties, headers: Table) -> object:
        found = left(properties, headers)
        return operate(found, value) if type(found) in comparable else None

    return evaluate


def _compare(left: Evaluate, operate: Operator, right: Evaluate, types: Types) -> Evaluate:
    def evaluate(properties: BasicProperties, headers: Table) -> object:
        return compare(operate, types, left(properties, headers), right(properties, headers))

    return evaluate


def _between(operand: Evaluate, low: Evaluate, high: Evaluate) -> Evaluate:
    (at_least, types), (at_most, _) = COMPARISONS[">="], COMPARISONS["<="]

    def evaluate(properties: BasicProperties, headers: Table) -> object:
        value = operand(properties, headers)
        above = compare(at_least, types, value, low(properties, headers))
        below = compare(at_most, types, value, high(properties, headers))
        if above is False or below is False:
            return False
        return True if above and below else None

    return evaluate


def _in(operand: Evaluate, choices: tuple[t.Constant, ...]) -> Evaluate:
    """TRUE if the value equals a choice. If not, FALSE, or unknown if any choice is of another kind."""
    by_type = {kind: _choices_of(types, choices) for kind, types in EQUAL_TYPES.items()}

    def evaluate(properties: BasicProperties, headers: Table) -> object:
        value = operand(properties, headers)
        known = by_type.get(type(value))
        return None if known is None else value in known[0] or known[1]

    return evaluate


def _choices_of(
    types: frozenset[type], choices: tuple[t.Constant, ...]
) -> tuple[frozenset[t.Constant], bool | None]:
    """The choices of these types, and the result for a value that equals none of them."""
    equals = [choice for choice in choices if type(choice) in types]
    return frozenset(equals), False if len(equals) == len(choices) else None


def _like(operand: Evaluate, pattern: Pattern) -> Evaluate:
    matches = pattern.matches

    def evaluate(properties: BasicProperties, headers: Table) -> object:
        value = operand(properties, headers)
        return matches(value) if isinstance(value, str) else None

    return evaluate


def _is_null(operand: Evaluate) -> Evaluate:
    return lambda properties, headers: operand(properties, headers) is None


def _not(operand: Evaluate) -> Evaluate:
    def evaluate(properties: BasicProperties, headers: Table) -> object:
        value = operand(properties, headers)
        return not value if isinstance(value, bool) else None

    return evaluate


def _and(terms: list[Evaluate]) -> Evaluate:
    def evaluate(properties: BasicProperties, headers: Table) -> object:
        result: bool | None = True
        for term in terms:
            value = term(properties, headers)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    return evaluate


def _or(terms: list[Evaluate]) -> Evaluate:
    def evaluate(properties: BasicProperties, headers: Table) -> object:
        result: bool | None = False
        for term in terms:
            value = term(properties, headers)
            if value is True:
                return True
            if value is not False:
                result = None
        return result

    return evaluate


def _arithmetic(first: Evaluate, rest: list[tuple[Operator, Evaluate]]) -> Evaluate:
    def evaluate(properties: BasicProperties, headers: Table) -> object:
        value = first(properties, headers)
        for operate, operand in rest:
            value = calculate(operate, value, operand(properties, headers))
        return value

    return evaluate
