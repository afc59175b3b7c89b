"""Makes a tree of the tokens of a selector, by recursive descent.

    selector     expression END
    expression   conjunction { OR conjunction }
    conjunction  negation { AND negation }
    negation     { NOT } predicate
    predicate    sum [ test ]
    test         ( = | <> | != | < | <= | > | >= ) sum
                 [ NOT ] BETWEEN sum AND sum
                 [ NOT ] IN '(' literal { ',' literal } ')'
                 [ NOT ] LIKE string [ ESCAPE string ]
                 IS [ NOT ] NULL
    sum          product { ( + | - ) product }
    product      factor { ( * | / ) factor }
    factor       { + | - } primary
    primary      string | number | TRUE | FALSE | name | '(' expression ')'
    literal      string | { + | - } number | TRUE | FALSE

The selector itself and the operands of AND, OR and NOT must be conditions. A name is a condition, since a
header may be a boolean. A string or a number is not, and is an error, as in JMS: it could never be true.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.selector.lexer import SelectorError, Token, TokenKind, shown, tokenize
from warren.broker.selector.like import Pattern
from warren.broker.selector.names import is_known
from warren.broker.selector.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Or,
    Signed,
)
from warren.broker.selector.values import COMPARISONS

DEPTH_MAX = 20
SPELLINGS = {"!=": "<>"}


def parse(text: str) -> Node:
    parser = _Parser(tokenize(text))
    start = parser.token
    tree = parser.expression()
    if parser.token.kind is not TokenKind.END:
        raise parser.unexpected("an operator or the end")
    return _condition(tree, start)


def _condition(node: Node, start: Token) -> Node:
    """The node, if it can be true or false; else SelectorError. `start` is its first token."""
    match node:
        case Literal(value=bool()):
            return node
        case Literal(value=str()):
            kind = "a string"
        case Literal() | Arithmetic() | Signed():
            kind = "a number"
        case _:
            return node
    raise SelectorError(f"expected a condition at {start.at}, not {kind}")


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.next = 0  # the index of the next token
        self.depth = 0  # of open parentheses

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.token
        self.next += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether one of these keywords or symbols is next."""
        return self.token.kind in {TokenKind.KEYWORD, TokenKind.SYMBOL} and self.token.text in words

    def skip(self, word: str) -> bool:
        """Take the next token if it is this keyword or symbol; return whether it was."""
        found = self.at(word)
        self.next += found
        return found

    def expect(self, word: str) -> None:
        if not self.skip(word):
            raise self.unexpected(shown(word))

    def unexpected(self, expected: str) -> SelectorError:
        return SelectorError(f"unexpected {self.token} at {self.token.at}: expected {expected}")

    def expression(self) -> Node:
        return self.joined("OR", Or, self.conjunction)

    def conjunction(self) -> Node:
        return self.joined("AND", And, self.negation)

    def joined(self, word: str, join: type[And | Or], operand: Callable[[], Node]) -> Node:
        start = self.token
        first = operand()
        if not self.at(word):
            return first
        terms = [_condition(first, start)]
        while self.skip(word):
            start = self.token
            terms.append(_condition(operand(), start))
        return join(tuple(terms))

    def negation(self) -> Node:
        if not self.at("NOT"):
            return self.predicate()
        negative = False
        while self.skip("NOT"):
            negative = not negative
        start = self.token
        operand = _condition(self.predicate(), start)
        return Not(operand) if negative else operand

    def predicate(self) -> Node:
        operand = self.sum()
        if self.at("!=", *COMPARISONS):
            sign = self.take().text
            return Comparison(SPELLINGS.get(sign, sign), operand, self.sum())
        if self.skip("IS"):
            return self.is_null(operand)
        negative = self.skip("NOT")
        if not self.at("BETWEEN", "IN", "LIKE"):
            if negative:
                raise self.unexpected("BETWEEN, IN or LIKE")
            return operand
        test = self.test(operand)
        return Not(test) if negative else test

    def test(self, operand: Node) -> Node:
        match self.take().text:
            case "BETWEEN":
                return self.between(operand)
            case "IN":
                return self.choices(operand)
            case _:
                return self.like(operand)

    def is_null(self, operand: Node) -> Node:
        negative = self.skip("NOT")
        self.expect("NULL")
        test = IsNull(operand)
        return Not(test) if negative else test

    def between(self, operand: Node) -> Node:
        low = self.sum()
        self.expect("AND")
        return Between(operand, low, self.sum())

    def choices(self, operand: Node) -> Node:
        self.expect("(")
        choices = [self.literal()]
        while self.skip(","):
            choices.append(self.literal())
        if not self.skip(")"):
            raise self.unexpected("',' or ')'")
        return In(operand, tuple(choices))

    def literal(self) -> Constant:
        if not self.at("+", "-"):
            return self.constant("a string, a number, TRUE or FALSE")
        negative = self.signs()
        value = self.token.value
        if not isinstance(value, int | float):
            raise self.unexpected("a number")
        self.next += 1
        return -value if negative else value

    def like(self, operand: Node) -> Node:
        at = self.token.at
        pattern = self.string()
        escape = self.escape() if self.skip("ESCAPE") else None
        try:
            return Like(operand, Pattern(pattern, escape))
        except ValueError as error:
            raise SelectorError(f"malformed pattern at {at}: {error}") from error

    def escape(self) -> str:
        at = self.token.at
        escape = self.string()
        if len(escape) != 1:
            raise SelectorError(f"malformed escape {shown(escape)} at {at}: expected one character")
        return escape

    def string(self) -> str:
        if self.token.kind is not TokenKind.STRING:
            raise self.unexpected("a string")
        return str(self.take().value)

    def sum(self) -> Node:
        return self.calculated(("+", "-"), self.product)

    def product(self) -> Node:
        return self.calculated(("*", "/"), self.factor)

    def calculated(self, signs: tuple[str, str], operand: Callable[[], Node]) -> Node:
        first = operand()
        if not self.at(*signs):
            return first
        rest = []
        while self.at(*signs):
            sign = self.take().text
            rest.append((sign, operand()))
        return Arithmetic(first, tuple(rest))

    def factor(self) -> Node:
        if not self.at("+", "-"):
            return self.primary()
        negative = self.signs()
        operand = self.primary()
        if isinstance(operand, Literal) and not isinstance(operand.value, str | bool):
            return Literal(-operand.value if negative else operand.value)
        return Signed(negative, operand)

    def signs(self) -> bool:
        """Take all signs; return whether together they are a minus."""
        negative = False
        while self.at("+", "-"):
            negative ^= self.take().text == "-"
        return negative

    def primary(self) -> Node:
        if self.token.kind is TokenKind.NAME:
            return self.name()
        if self.at("("):
            return self.parentheses()
        return Literal(self.constant("a value"))

    def name(self) -> Node:
        token = self.take()
        name = str(token.value)
        if not is_known(name):
            raise SelectorError(f"unknown property {token} at {token.at}")
        return Name(name)

    def parentheses(self) -> Node:
        if self.depth == DEPTH_MAX:
            raise SelectorError(f"parentheses at {self.token.at} are nested more than {DEPTH_MAX} deep")
        self.depth += 1
        self.expect("(")
        inside = self.expression()
        if not self.skip(")"):
            raise self.unexpected("an operator or ')'")
        self.depth -= 1
        return inside

    def constant(self, expected: str) -> Constant:
        if self.at("TRUE", "FALSE"):
            return self.take().text == "TRUE"
        if self.at("NULL"):
            raise self.unexpected(f"{expected}; NULL is only for IS NULL")
        value = self.token.value
        if value is None or self.token.kind is TokenKind.NAME:
            raise self.unexpected(expected)
        self.next += 1
        return value
