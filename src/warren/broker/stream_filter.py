"""What a consumer of a stream wants of it: the language of `x-stream-filter`.

A message has values in its header `x-stream-filter-value`, separated by commas. A filter is values as well,
all of which a message must have; a list of such filters is satisfied by any of them. A message without
values is left out, unless `x-stream-match-unfiltered` asks for it.
"""

from __future__ import annotations

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Value, decode_value
from warren.amqp.traits import header_of

FILTER_VALUE = b"x-stream-filter-value"
FILTER, MATCH_UNFILTERED = "x-stream-filter", "x-stream-match-unfiltered"
ALTERNATIVES_MAX = 256


def filter_values(value: Value) -> frozenset[str]:
    """Those in a header or a filter; none if it is not text."""
    if not isinstance(value, str):
        return frozenset()
    return frozenset(part.strip() for part in value.split(",") if part.strip())


class StreamFilter:
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
    """What a consumer's arguments ask for; 406 if that makes no sense."""
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
