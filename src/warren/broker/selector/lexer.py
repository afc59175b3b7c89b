"""Cuts the text of a selector into tokens.

    keyword   AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE, in any case
    name      a letter, '_' or '$', then letters, digits and any of '_ $ .'
              a '-' between two such characters belongs to the name: `a-b` is one name, `a - b` a difference
              also "any text", where "" is one quote
    string    'any text', where '' is one quote
    integer   12  0x1F                     at most 64 bits
    float     1.5  1.  .5  1e3  1.5E-3
    symbol    = <> != < <= > >= + - * / ( ) ,

Positions in error texts count the characters of the selector from 0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

from warren.broker.selector.values import INTEGER_MAX

TEXT_LENGTH_MAX = 4096
TOKENS_MAX = 1024
SHOWN_LENGTH_MAX = 30  # characters of a token in an error text

KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"})

_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ )
    | (?P<name>    (?: [^\W\d] | \$ ) [\w$.]* (?: -[\w$.]+ )* )
    | (?P<hex>     0[xX][0-9a-fA-F]+ )
    | (?P<float>   (?: [0-9]+\.[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )?  |  [0-9]+[eE][+-]?[0-9]+ )
    | (?P<integer> [0-9]+ )
    | (?P<string>  '(?: [^'] | '' )*+' )
    | (?P<quoted>  "(?: [^"] | "" )*+" )
    | (?P<symbol>  <> | != | <= | >= | [=<>+\-*/(),] )
    """,
    re.VERBOSE,
)
_CONTINUES_NUMBER = re.compile(r"[\w$.]")


class SelectorError(ValueError):
    """Says what is wrong with the text of a selector, and where."""


class TokenKind(Enum):
    KEYWORD = "keyword"
    SYMBOL = "symbol"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    text: str  # as it was written, but a keyword in capitals
    at: int  # where it begins
    value: str | int | float | None = None  # of a name or a literal

    def __str__(self) -> str:
        return "end" if self.kind is TokenKind.END else shown(self.text)


def shown(text: str) -> str:
    """The text in quotes, cut if it is long, for an error text of one line."""
    return repr(text if len(text) <= SHOWN_LENGTH_MAX else text[:SHOWN_LENGTH_MAX] + "…")


def tokenize(text: str) -> list[Token]:
    """The tokens of the text; the last one is an END."""
    if len(text) > TEXT_LENGTH_MAX:
        raise SelectorError(f"the selector is too long: {len(text)} characters, at most {TEXT_LENGTH_MAX}")
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unreadable(text, at)
        if found.lastgroup != "space":
            tokens.append(_token(found))
        if len(tokens) > TOKENS_MAX:
            raise SelectorError(f"the selector is too long at {at}: it has more than {TOKENS_MAX} tokens")
        at = found.end()
    return [*tokens, Token(TokenKind.END, "", at)]


def _unreadable(text: str, at: int) -> SelectorError:
    if text[at] == "'":
        return SelectorError(f"the string that starts at {at} has no closing quote")
    if text[at] == '"':
        return SelectorError(f"the name that starts at {at} has no closing quote")
    return SelectorError(f"unexpected character {shown(text[at])} at {at}")


def _token(found: re.Match[str]) -> Token:
    text, at = found[0], found.start()
    match found.lastgroup:
        case "name":
            return _word(text, at)
        case "quoted":
            return Token(TokenKind.NAME, text, at, _unquoted(text))
        case "string":
            return Token(TokenKind.STRING, text, at, _unquoted(text))
        case "symbol":
            return Token(TokenKind.SYMBOL, text, at)
        case _:
            return Token(TokenKind.NUMBER, text, at, _number(found))


def _word(text: str, at: int) -> Token:
    keyword = text.upper()
    if keyword in KEYWORDS and text.isascii():
        return Token(TokenKind.KEYWORD, keyword, at)
    return Token(TokenKind.NAME, text, at, text)


def _unquoted(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)


def _number(found: re.Match[str]) -> int | float:
    text, at = found[0], found.start()
    if _CONTINUES_NUMBER.match(found.string, found.end()):
        raise SelectorError(f"malformed number {shown(found.string[at : found.end() + 1])} at {at}")
    if found.lastgroup == "float":
        value = float(text)
        if math.isinf(value):
            raise SelectorError(f"number {shown(text)} at {at} is too large")
        return value
    integer = int(text, 16 if found.lastgroup == "hex" else 10)
    if integer > INTEGER_MAX:
        raise SelectorError(f"number {shown(text)} at {at} is too large: it has more than 64 bits")
    return integer
