"""`x-stream-filter`: which messages of a stream a consumer wants.

A message has values in its header `x-stream-filter-value`, separated by commas. A filter is a list of values,
too, and matches messages that have all of them. If the argument is an array of filters, one that matches is
enough. Messages without values only match if `x-stream-match-unfiltered` is true.
"""

from __future__ import annotations

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Value, decode_value
from warren.amqp.traits import header_of

FILTER_VALUE = b"x-stream-filter-value"
FILTER, MATCH_UNFILTERED = "x-stream-filter", "x-stream-match-unfiltered"
ALTERNATIVES_MAX = 256


def filter_values(value: Value) -> frozenset[str]:
    """The values in a header or a filter; none if it is not a string."""
    if not isinstance(value, str):
        return frozenset()
    return frozenset(part.strip() for part in value.split(",") if part.strip())


class StreamFilter:
    """A message must have all values of at least one of the `alternatives`."""

    def __init__(self, alternatives: list[frozenset[str]], *, match_unfiltered: bool) -> None:
        self.alternatives = alternatives
        self.match_unfiltered = match_unfiltered

    def matches(self, properties: bytes) -> bool:
        encoded = header_of(properties, FILTER_VALUE)
        values = frozenset() if encoded is None else filter_values(decode_value(encoded))
        if not values:
            return self.match_unfiltered
        return any(wanted <= values for wanted in self.alternatives)


def filter_of(arguments: Table) -> StreamFilter | None:
    """The filter in a consumer's arguments, or None; 406 if it makes no sense."""
    match_unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(match_unfiltered, bool):
        raise PreconditionFailed(f"invalid arg '{MATCH_UNFILTERED}': {match_unfiltered!r} is not a boolean")
    if FILTER not in arguments:
        return None
    given = arguments[FILTER]
    wanted = given if isinstance(given, list) else [given]
    alternatives = [filter_values(value) for value in wanted]
    if not alternatives or not all(alternatives):
        raise PreconditionFailed(
            f"invalid arg '{FILTER}': {given!r} is neither values separated by commas nor a list of such"
        )
    if len(alternatives) > ALTERNATIVES_MAX:
        raise PreconditionFailed(f"invalid arg '{FILTER}': more than {ALTERNATIVES_MAX} alternatives")
    return StreamFilter(alternatives, match_unfiltered=match_unfiltered)
