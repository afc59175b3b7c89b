"""Regular expressions that users give: in policies, in permissions, and as filters of lists.

Some expressions, such as `^(a|aa)+$`, take longer than anybody lives for a name of 80 letters, and the whole
broker would wait. So a search has a limit of time. An expression that has exceeded it once is not tried
again, and matches nothing.
"""

from __future__ import annotations

from functools import lru_cache

import regex

SEARCH_SECONDS_MAX = 0.05
PATTERNS_CACHED_MAX = 1_000


class Pattern:
    """ValueError if the text is no regular expression."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        try:
            self.expression = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (regex.error, OverflowError, RecursionError) as error:
            raise ValueError(f"'{text}' is no regular expression: {error}") from error
        self.is_too_slow = False  # it has exceeded the limit of time

    def is_in(self, name: str) -> bool:
        """Whether any part of the name matches."""
        if self.is_too_slow:
            return False
        try:
            return self.expression.search(name, timeout=SEARCH_SECONDS_MAX) is not None
        except TimeoutError:
            self.is_too_slow = True
            return False


@lru_cache(PATTERNS_CACHED_MAX)
def pattern_of(text: str) -> Pattern:
    return Pattern(text)
