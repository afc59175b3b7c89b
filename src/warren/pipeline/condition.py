"""Turns a condition in SQL into options of a read, so that messages the condition rules out are not read.

    condition = "queue = 'orders' and offset >= 10 and timestamp < '2026-03-01'"
    spark.read.format("warren").option("url", url).options(**options_for(condition)).load().filter(condition)

Spark 4 can hand filters to a source itself, but it keeps the filters of one query for the next query on the
same DataFrame: a source that skipped messages by them would give wrong results. Options belong to their
DataFrame.

Only comparisons of vhost, queue, offset and timestamp with a literal, joined by AND, are understood. Anything
else is left to the filter: the options never leave out a message for which the condition is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest

TOKENS = re.compile(
    r"""(?P<space>\s+)|(?P<comment>--|/\*)|(?P<text>'[^'\\]*')|`(?P<quoted>[^`]*)`|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<odd>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<number>\d+(?![\w.]))|(?P<sign><=>|<=|>=|<>|!=|==|[<>=(),])|(?P<other>.)""",
    re.DOTALL,
)
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "="}
MICROSECONDS = 1_000_000
NOT_JOINED_BY_AND = {"or", "case"}


@dataclass(frozen=True)
class Lexeme:
    """`kind` is the name of a group in TOKENS; words are in lower case. An `odd` text, one with escapes or
    double quotes, is not interpreted.
    """

    kind: str
    value: str


@dataclass
class Ranges:
    """The messages for which the condition may be true."""

    offsets: tuple[int, int | None] = (0, None)  # the first, and the one behind the last; None: no end
    times: tuple[int, int | None] = (0, None)  # likewise, in microseconds since 1970
    names: dict[str, list[str]] = field(default_factory=dict)  # by column, vhost or queue: those allowed

    def narrow(self, column: str, sign: str, value: int) -> None:
        first, end = getattr(self, column)
        if sign in {">", ">=", "=", "=="}:
            first = max(first, value + (sign == ">"))
        if sign in {"<", "<=", "=", "=="}:
            below = value + (sign != "<")
            end = below if end is None else min(end, below)
        setattr(self, column, (first, end))

    def choose(self, column: str, names: Sequence[str]) -> None:
        known = self.names.get(column, names)
        self.names[column] = [name for name in known if name in names] or list(known)

    def options(self) -> dict[str, str]:
        options = {}
        if self.names.get("vhost"):
            options["vhost"] = self.names["vhost"][0]
        if queues := self.names.get("queue"):
            listed = all(name and name == name.strip() and "," not in name for name in queues)
            options |= (
                {"subscribe": ",".join(queues)}
                if listed
                else {"subscribePattern": "|".join(map(re.escape, queues))}
            )
        return options | self._bounds()

    def _bounds(self) -> dict[str, str]:
        bounds = {}
        (first, end), (since, until) = self.offsets, self.times
        if end is not None and end <= 0:
            first, end = 1, 1  # minOffset 1 and maxOffset 0: the options' way to say "no offset at all"
        if first:
            bounds["minOffset"] = str(first)
        if end is not None:
            bounds["maxOffset"] = str(end - 1)
        if since:
            bounds["startingTimestamp"] = str(-(-since // 1000))
        if until is not None:
            bounds["endingTimestamp"] = str(max(0, -(-until // 1000)))
        return bounds


def options_for(condition: str) -> dict[str, str]:
    """Options of `spark.read.format("warren")` that skip messages for which the condition is false.

    Not all such messages are skipped, so filter by the condition as well. A time without a zone is in UTC.
    """
    ranges = Ranges()
    tokens = [Lexeme(kind, value) for kind, value in _tokens(condition)]
    if all(token.kind != "comment" for token in tokens):
        _take(tokens, ranges)
    return ranges.options()


def _tokens(condition: str) -> Iterator[tuple[str, str]]:
    for match in TOKENS.finditer(condition):
        kind = match.lastgroup or "other"
        if kind == "space":
            continue
        if kind == "quoted":
            yield "word", match["quoted"].lower()
        elif kind == "text":
            yield kind, match["text"][1:-1]
        else:
            yield kind, match[kind].lower()


def _take(tokens: Sequence[Lexeme], ranges: Ranges) -> None:
    """Narrow the ranges by each term that is joined by AND; terms that are not understood change nothing."""
    for term in _terms(tokens):
        if len(term) > 1 and _closes_at(term) == len(term) - 1:
            _take(term[1:-1], ranges)
        else:
            _take_comparison(term, ranges)


def _terms(tokens: Sequence[Lexeme]) -> list[list[Lexeme]]:
    """Split at each AND that is neither in parentheses nor part of BETWEEN; [] if there is OR or CASE."""
    terms: list[list[Lexeme]] = [[]]
    depth, between = 0, False
    for token in tokens:
        is_word = token.kind == "word" and depth == 0
        if is_word and token.value in NOT_JOINED_BY_AND:
            return []
        if is_word and token.value == "and" and not between:
            terms.append([])
            continue
        if is_word and token.value in {"between", "and"}:
            between = token.value == "between"
        depth += (token == OPEN) - (token == CLOSE)
        terms[-1].append(token)
    return terms


OPEN, CLOSE = Lexeme("sign", "("), Lexeme("sign", ")")


def _closes_at(term: Sequence[Lexeme]) -> int:
    """The index at which the term's first parenthesis closes; -1 if the term does not begin with one."""
    depth = 0
    for place, token in enumerate(term):
        depth += (token == OPEN) - (token == CLOSE)
        if depth == 0:
            return place or -1
    return -1


def _take_comparison(term: Sequence[Lexeme], ranges: Ranges) -> None:
    match _without_types(term):
        case [Lexeme("word", column), Lexeme("sign", sign), literal] if sign in FLIPPED:
            _compare(column, sign, literal, ranges)
        case [literal, Lexeme("sign", sign), Lexeme("word", column)] if sign in FLIPPED:
            _compare(column, FLIPPED[sign], literal, ranges)
        case [
            Lexeme("word", column),
            Lexeme("word", "between"),
            low,
            Lexeme("word", "and"),
            high,
        ]:
            _compare(column, ">=", low, ranges)
            _compare(column, "<=", high, ranges)
        case [
            Lexeme("word", ("vhost" | "queue") as column),
            Lexeme("word", "in"),
            opened,
            *names,
            closed,
        ] if (
            opened,
            closed,
        ) == (OPEN, CLOSE):
            _choose_among(column, names, ranges)


def _without_types(term: Sequence[Lexeme]) -> list[Lexeme]:
    """Drop the word `timestamp` in front of a text: `timestamp '2026-03-01'` is one literal."""
    return [
        token
        for token, following in zip_longest(term, term[1:])
        if not (token == Lexeme("word", "timestamp") and following is not None and following.kind == "text")
    ]


def _compare(column: str, sign: str, literal: Lexeme, ranges: Ranges) -> None:
    if column == "offset" and literal.kind == "number":
        ranges.narrow("offsets", sign, int(literal.value))
    elif column == "timestamp" and literal.kind == "text":
        moment = _microseconds(literal.value)
        if moment is not None:
            ranges.narrow("times", sign, moment)
    elif column in {"vhost", "queue"} and literal.kind == "text" and sign in {"=", "=="}:
        ranges.choose(column, [literal.value])


def _choose_among(column: str, listed: Sequence[Lexeme], ranges: Ranges) -> None:
    names, commas = listed[::2], listed[1::2]
    is_list = len(listed) % 2 and all(comma == Lexeme("sign", ",") for comma in commas)
    if not is_list or any(name.kind != "text" for name in names):
        return
    if column == "queue" or len(names) == 1:  # one read has one vhost
        ranges.choose(column, [name.value for name in names])


def _microseconds(text: str) -> int | None:
    """The time since 1970; None if the text is no time, or one that only Spark understands."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds
