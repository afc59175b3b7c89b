"""The nodes of a selector's tree.

Chains of operators are lists, and of repeated signs and NOTs only the result is kept. So a tree is only as
deep as the parentheses in its text, which are bounded: it can be walked by recursion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from warren.broker.selector.like import Pattern

Constant: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Literal:
    value: Constant


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Signed:
    """+ or - before a value."""

    negative: bool
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A chain of operators of one precedence, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]  # operator and operand


@dataclass(frozen=True, slots=True)
class Comparison:
    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    operand: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class In:
    operand: Node
    choices: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Like:
    operand: Node
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Node, ...]


Node: TypeAlias = (
    Literal | Name | Signed | Arithmetic | Comparison | Between | In | Like | IsNull | Not | And | Or
)
