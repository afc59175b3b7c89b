"""LIKE: in a pattern, '%' stands for any characters and '_' for any one character. After the escape
character, a character stands for itself.

A pattern is split at each '%' into pieces:

    'ab%c_d%e'    ->    ab  c_d  e

The text must start with the first piece and end with the last one. Each piece between them is searched from
where the one before it ended. The leftmost place is always good enough, so the search never goes back.

A piece without '_' is found in a time proportional to the length of the text. A piece with '_' is a regular
expression of characters and dots, without repetitions: at worst it takes that times the length of the piece.
That is half a second, if the longest selector and a header of 128 KB are made for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

ANY, ONE = "%", "_"

# A character of a piece; None stands for any character.
_Character = str | None


class Piece:
    """The part of a pattern between two '%'."""

    __slots__ = ("expression", "length", "runs")

    def __init__(self, characters: list[_Character]) -> None:
        self.length = len(characters)
        self.runs = list(_runs(characters))  # its literal parts, each with its offset in the piece
        self.expression = _expression(characters) if None in characters else None  # None without '_'

    def fits(self, text: str, at: int) -> bool:
        """Whether the text has the piece at exactly this place. The caller makes sure that the text is long
        enough.
        """
        for offset, run in self.runs:  # noqa: SIM110 - with a generator a match takes 1.7 times as long
            if not text.startswith(run, at + offset):
                return False
        return True

    def find_end(self, text: str, at: int, stop: int) -> int:
        """Where the leftmost occurrence of the piece between `at` and `stop` ends; -1 if there is none."""
        if self.expression is not None:
            match = self.expression.search(text, at, stop)
            return -1 if match is None else match.end()
        found = text.find(self.runs[0][1], at, stop)
        return -1 if found < 0 else found + self.length


def _expression(characters: list[_Character]) -> re.Pattern[str]:
    return re.compile("".join("." if c is None else re.escape(c) for c in characters), re.DOTALL)


def _runs(characters: list[_Character]) -> Iterator[tuple[int, str]]:
    """The runs of literal characters, each with the offset where it starts."""
    at = 0
    for is_any, group in groupby(characters, lambda character: character is None):
        run = list(group)
        if not is_any:
            yield at, "".join(filter(None, run))
        at += len(run)


def _split(pattern: str, escape: str | None) -> Iterator[Piece]:
    piece: list[_Character] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError("it ends with its escape character")
            piece.append(escaped)
        elif character == ANY:
            yield Piece(piece)
            piece = []
        else:
            piece.append(None if character == ONE else character)
    yield Piece(piece)


class Pattern:
    """A pattern; ValueError if nothing follows its last escape character."""

    __slots__ = ("first", "is_whole", "last", "length_min", "middle")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        self.first, *rest = _split(pattern, escape)
        self.is_whole = not rest  # whether there is no '%', so that the first piece is the whole pattern
        self.last = rest.pop() if rest else Piece([])
        self.middle = [piece for piece in rest if piece.length]
        self.length_min = self.first.length + self.last.length

    def matches(self, text: str) -> bool:
        length = len(text)
        if length < self.length_min or (self.is_whole and length > self.length_min):
            return False
        at, stop = self.first.length, length - self.last.length
        if not self.first.fits(text, 0) or not self.last.fits(text, stop):
            return False
        for piece in self.middle:
            at = piece.find_end(text, at, stop)
            if at < 0:
                return False
        return True
