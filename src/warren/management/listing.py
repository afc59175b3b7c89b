"""Lists with RabbitMQ's query parameters: filters, sorting, columns and pages.

    ?name=orders&use_regex=false         only items whose name has this text, or matches this expression
    ?sort=messages&sort_reverse=true     by a column, which may be nested: `message_stats.publish`
    ?columns=name,messages_ready         only these columns
    ?page=1&page_size=100                one page, in an object that tells how many pages there are

Rows are made some in each turn of the loop. If they are neither sorted nor filtered by what is in them, only
the rows of the page are made.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from aiohttp import web

from warren.broker.pattern import Pattern
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import ApiError, BadRequest, Handler
from warren.management.json_text import batches, send_rows, to_json
from warren.management.schema import COUNT, FLAG, TABLE, TEXT, Schema, record
from warren.management.schema import rows as rows_of
from warren.server.pace import at_a_pace

Row: TypeAlias = dict[str, Any]
T = TypeVar("T")

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
PATTERN_LENGTH_MAX = 500
SORTED_AT_ONCE_MAX = 1_000
QUERY = (
    Parameter("page", COUNT, "Which page to give, from 1 on. Without it, all items come as a list."),
    Parameter("page_size", COUNT, f"Items on a page: {PAGE_SIZE} if not given, at most {PAGE_SIZE_MAX}."),
    Parameter("name", TEXT, "Only items whose name has this in it."),
    Parameter("use_regex", FLAG, "Whether `name` is a regular expression."),
    Parameter("sort", TEXT, "The column to sort by; dots lead into nested ones."),
    Parameter("sort_reverse", FLAG, "Whether to sort from the highest to the lowest."),
    Parameter("columns", TEXT, "Names of columns, separated by commas: give only these."),
)
LIST: Schema = {"anyOf": [rows_of(TABLE), record({"items": rows_of(TABLE)}, page=COUNT, page_count=COUNT)]}
"""Of the answer: a list, or one page."""


def list_endpoint(path: str, handler: Handler, summary: str, query: tuple[Parameter, ...] = ()) -> Endpoint:
    """An endpoint whose handler uses `send_list`; `query` are further parameters."""
    given = (*QUERY, *query)
    return Endpoint(
        method="GET", path=path, handler=handler, summary=summary, query=given, gives=LIST, is_list=True
    )


class PageOutOfRange(ApiError):
    status, error = 400, "page_out_of_range"


@dataclass(frozen=True)
class Wanted:
    """What the query of a request asks for."""

    page: int | None
    page_size: int
    is_wanted: Callable[[str], bool] | None  # whether an item with this name is; None: all are
    sort: tuple[str, ...]  # the path of the column; empty if the items are not sorted
    reverse: bool
    columns: tuple[tuple[str, ...], ...]  # the paths of those to give, none within another; empty for all

    @classmethod
    def of(cls, request: web.Request) -> Wanted:
        query = request.query
        page = whole(query.get("page"), "page") if "page" in query else None
        size = whole(query.get("page_size", str(PAGE_SIZE)), "page_size")
        if page is not None and page < 1:
            raise BadRequest(f"page: {page} is not positive")
        if not 1 <= size <= PAGE_SIZE_MAX:
            raise BadRequest(f"page_size: {size} is not within 1 and {PAGE_SIZE_MAX}")
        return cls(
            page,
            size,
            name_filter(query.get("name", ""), use_regex=flag(query.get("use_regex", "false"), "use_regex")),
            tuple(query["sort"].split(".")) if query.get("sort") else (),
            flag(query.get("sort_reverse", "false"), "sort_reverse"),
            columns_in(query.get("columns", "")),
        )

    def pages(self, count: int) -> int:
        """How many pages so many items fill."""
        return max(1, -(-count // self.page_size))

    def check_page(self, count: int) -> None:
        if self.page is not None and self.page > self.pages(count):
            raise PageOutOfRange(
                f"page out of range, page: {self.page} page size: {self.page_size}, len: {count}"
            )

    def part_of(self, items: Sequence[T]) -> Sequence[T]:
        """The items of the page; all of them, if no page is asked for."""
        if self.page is None:
            return items
        first = (self.page - 1) * self.page_size
        return items[first : first + self.page_size]

    def row_of(self, item: T, part_with: Callable[[T, str], Row]) -> Row:
        """The columns that are asked for. The other parts of the item's row are not made."""
        made: Row = {}
        chosen: Row = {}
        for path in self.columns:
            if path[0] not in made:
                made |= part_with(item, path[0])
            parent = value_at(made, path[:-1])
            if isinstance(parent, dict) and path[-1] in parent:
                place = chosen
                for name in path[:-1]:
                    place = place.setdefault(name, {})
                place[path[-1]] = parent[path[-1]]
        return chosen


async def send_list(
    request: web.Request,
    items: Sequence[T],
    describe: Callable[[T], Row],
    name_of: Callable[[T], str] = lambda item: str(getattr(item, "name", "")),
    part_with: Callable[[T, str], Row] | None = None,
) -> web.StreamResponse:
    """Send the rows of these items that the query asks for. `part_with` makes the part of an item's row that
    has a column, where that is less work than the whole row.
    """
    wanted = Wanted.of(request)
    part = part_with or (lambda item, _column: describe(item))
    found = await matching(items, wanted.is_wanted, name_of)
    wanted.check_page(len(found))
    shown = wanted.part_of(found)
    if wanted.sort:
        shown = wanted.part_of(await in_order(found, wanted, part))
    elif wanted.reverse:
        shown = wanted.part_of(found[::-1])
    rows = (wanted.row_of(item, part) if wanted.columns else describe(item) for item in shown)
    if wanted.page is None:
        return await send_rows(request, rows)
    page = {
        "page": wanted.page,
        "page_count": wanted.pages(len(found)),
        "page_size": wanted.page_size,
        "item_count": len(shown),
        "filtered_count": len(found),
        "total_count": len(items),
    }
    return await send_rows(request, rows, head=to_json(page)[:-1] + b',"items":', tail=b"}")


async def matching(
    items: Sequence[T], is_wanted: Callable[[str], bool] | None, name_of: Callable[[T], str]
) -> Sequence[T]:
    if is_wanted is None:
        return items
    return [item async for item in at_a_pace(items) if is_wanted(name_of(item))]


async def in_order(items: Sequence[T], wanted: Wanted, part_with: Callable[[T, str], Row]) -> list[T]:
    """The items by the column to sort by, up to the end of the page. Only the sorted values are kept, since
    all rows at once would take much memory. Very many are sorted in runs, which are merged: to sort all at
    once would hold the loop.
    """
    path, order = wanted.sort, itemgetter(0)
    runs: list[list[tuple[tuple[int, Any], T]]] = []
    keyed = ((sort_key(value_at(part_with(item, path[0]), path)), item) for item in items)
    for run in batches(keyed, SORTED_AT_ONCE_MAX):
        run.sort(key=order, reverse=wanted.reverse)
        runs.append(run)
        await asyncio.sleep(0)
    merged = heapq.merge(*runs, key=order, reverse=wanted.reverse)
    most = None if wanted.page is None else wanted.page * wanted.page_size
    return [item async for _key, item in at_a_pace(islice(merged, most))]


def name_filter(text: str, *, use_regex: bool) -> Callable[[str], bool] | None:
    if not text:
        return None
    if not use_regex:
        return lambda name: text in name
    if len(text) > PATTERN_LENGTH_MAX:
        raise BadRequest(f"name: the expression has more than {PATTERN_LENGTH_MAX} characters")
    try:
        pattern = Pattern(text)
    except ValueError as error:
        raise BadRequest(f"name: {error}") from None

    def is_wanted(name: str) -> bool:
        found = pattern.is_in(name)
        if pattern.is_too_slow:
            raise BadRequest(f"name: '{text}' takes too long")
        return found

    return is_wanted


def columns_in(text: str) -> tuple[tuple[str, ...], ...]:
    """The paths of columns. One that lies within another is left out: the whole of it is given anyway, and it
    may be the object of the broker itself, into which nothing must be written.
    """
    paths = dict.fromkeys(tuple(name.split(".")) for name in text.split(",") if name)
    return tuple(path for path in paths if not any(path[:end] in paths for end in range(1, len(path))))


def value_at(row: Row, path: Sequence[str]) -> Any:
    """The value of a nested column; None if there is none."""
    value: Any = row
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def sort_key(value: object) -> tuple[int, Any]:
    """Puts values of any types in an order: none, numbers, texts, others."""
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (3, str(value))


def whole(text: str | None, name: str) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise BadRequest(f"{name}: {text!r} is no whole number") from None


def flag(text: str, name: str) -> bool:
    if text not in {"true", "false"}:
        raise BadRequest(f"{name}: {text!r} is neither true nor false")
    return text == "true"
