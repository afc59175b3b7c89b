"""Lists with RabbitMQ's query parameters: filters, sorting, columns and pages.

    ?name=orders&use_regex=false         only items whose name has this text, or matches this expression;
                                         capitals do not matter
    ?sort=messages&sort_reverse=true     by a column, which may be nested: `message_stats.publish`; without
                                         it in the order that `order.py` tells
    ?columns=name,messages_ready         only these columns
    ?page=1&page_size=100                one page, in an object that tells how many pages there are

Rows are made some in each turn of the loop. If they are neither sorted nor filtered by what is in them, only
the rows of the page are made. As in RabbitMQ, lists of what operators define (policies, permissions,
parameters) have no pages, and come whole whatever `page` says; flags are on if they are `true`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from aiohttp import web

from warren.broker.pattern import Pattern
from warren.management.columns import COLUMNS, Columns, chosen, columns_in
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import ApiError, BadRequest, Handler
from warren.management.json_text import send_rows, to_json
from warren.management.order import in_order
from warren.management.schema import COUNT, FLAG, TABLE, TEXT, Schema, record
from warren.management.schema import rows as rows_of
from warren.server.pace import at_a_pace

Row: TypeAlias = dict[str, Any]
T = TypeVar("T")

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
ON = "true"  # the one value with which a flag is on
PATTERN_LENGTH_MAX = 500
PAGES = (
    Parameter("page", COUNT, "Which page to give, from 1 on. Without it, all items come as a list."),
    Parameter("page_size", COUNT, f"Items on a page: {PAGE_SIZE} if not given, at most {PAGE_SIZE_MAX}."),
)
QUERY_OF_WHOLE_LISTS = (
    Parameter("name", TEXT, "Only items whose name has this in it."),
    Parameter("use_regex", FLAG, "Whether `name` is a regular expression."),
    Parameter("sort", TEXT, "The column to sort by; dots lead into nested ones."),
    Parameter("sort_reverse", FLAG, "Whether to sort from the highest to the lowest."),
    COLUMNS,
)
PAGE_NAMES = [each.name for each in PAGES]
QUERY = (*PAGES, *QUERY_OF_WHOLE_LISTS)
LIST: Schema = {"anyOf": [rows_of(TABLE), record({"items": rows_of(TABLE)}, page=COUNT, page_count=COUNT)]}
"""Of the answer: a list, or one page."""


def list_endpoint(path: str, handler: Handler, summary: str, query: tuple[Parameter, ...] = ()) -> Endpoint:
    """An endpoint whose handler uses `send_list`; `query` are further parameters."""
    given = (*QUERY, *query)
    return Endpoint(
        method="GET", path=path, handler=handler, summary=summary, query=given, gives=LIST, is_list=True
    )


def whole_list_endpoint(path: str, handler: Handler, summary: str) -> Endpoint:
    """The same for a list that has no pages: its handler uses `send_whole_list`."""
    return Endpoint(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        query=QUERY_OF_WHOLE_LISTS,
        gives=rows_of(TABLE),
        is_list=True,
    )


class PageOutOfRange(ApiError):
    status, error = 400, "page_out_of_range"


class WrongPage(ApiError):
    status, error = 400, "invalid_pagination_parameters"


@dataclass(frozen=True)
class Wanted:
    """What the query of a request asks for."""

    page: int | None
    page_size: int
    is_wanted: Callable[[str], bool] | None  # whether an item with this name is; None: all are
    sort: tuple[str, ...]  # the path of the column; empty if the items are not sorted
    reverse: bool
    columns: Columns  # those to give; empty for all

    @classmethod
    def of(cls, request: web.Request, *, paged: bool = True) -> Wanted:
        query = request.query
        page, size = page_in(request) if paged else (None, PAGE_SIZE)
        return cls(
            page,
            size,
            name_filter(query.get("name", ""), use_regex=query.get("use_regex") == ON),
            tuple(query["sort"].split(".")) if query.get("sort") else (),
            query.get("sort_reverse") == ON,
            columns_in(request),
        )

    def pages(self, count: int) -> int:
        """How many pages so many items fill."""
        return -(-count // self.page_size)

    def last(self) -> int | None:
        """How many items there are up to the end of the page; None without a page."""
        return None if self.page is None else self.page * self.page_size

    def check_page(self, count: int) -> None:
        """As in RabbitMQ, the page that begins where the list ends is empty, and those behind are wrong."""
        if self.page is not None and (self.page - 1) * self.page_size > count:
            raise PageOutOfRange(
                f"Page out of range, page: {self.page} page size: {self.page_size}, len: {count}"
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
        for name in self.columns:
            if name not in made:
                made |= part_with(item, name)
        row: Row = chosen(made, self.columns)
        return row


def page_in(request: web.Request) -> tuple[int | None, int]:
    """The page that is asked for, or None, and its size. The words of the errors are RabbitMQ's."""
    try:
        page, size = (int(text) if text is not None else None for text in map(request.query.get, PAGE_NAMES))
    except ValueError:
        raise BadRequest("Pagination parameters are invalid") from None
    if page is None:
        return None, PAGE_SIZE
    if page < 1 or (size is not None and not 1 <= size <= PAGE_SIZE_MAX):
        told = "undefined" if size is None else size
        raise WrongPage(f"Invalid pagination parameters: page number {page}, page size {told}")
    return page, PAGE_SIZE if size is None else size


async def send_whole_list(
    request: web.Request,
    items: Sequence[T],
    describe: Callable[[T], Row],
    name_of: Callable[[T], str],
    order: Callable[[T], Any],
) -> web.StreamResponse:
    """The same as `send_list`, for a list that has no pages."""
    wanted = Wanted.of(request, paged=False)
    return await _send(request, items, wanted, describe, name_of, lambda item, _column: describe(item), order)


async def send_list(
    request: web.Request,
    items: Sequence[T],
    describe: Callable[[T], Row],
    name_of: Callable[[T], str] = lambda item: str(getattr(item, "name", "")),
    part_with: Callable[[T, str], Row] | None = None,
    order: Callable[[T], Any] | None = None,
) -> web.StreamResponse:
    """Send the rows of these items that the query asks for. `part_with` makes the part of an item's row that
    has a column, where that is less work than the whole row. `order` is the key by which the items go if the
    query does not say otherwise; without it, they are in order.
    """
    part = part_with or (lambda item, _column: describe(item))
    return await _send(request, items, Wanted.of(request), describe, name_of, part, order)


async def _send(
    request: web.Request,
    items: Sequence[T],
    wanted: Wanted,
    describe: Callable[[T], Row],
    name_of: Callable[[T], str],
    part: Callable[[T, str], Row],
    order: Callable[[T], Any] | None,
) -> web.StreamResponse:
    found = await matching(items, wanted.is_wanted, name_of)
    count = len(found)
    wanted.check_page(count)
    if order is not None:
        found = await in_order(found, order, most=None if wanted.sort or wanted.reverse else wanted.last())
    if wanted.reverse:
        found = found[::-1]
    if wanted.sort:
        found = await sorted_by_column(found, wanted, part)
    shown = wanted.part_of(found)
    rows = (wanted.row_of(item, part) if wanted.columns else describe(item) for item in shown)
    if wanted.page is None:
        return await send_rows(request, rows)
    page = {
        "page": wanted.page,
        "page_count": wanted.pages(count),
        "page_size": wanted.page_size,
        "item_count": len(shown),
        "filtered_count": count,
        "total_count": len(items),
    }
    return await send_rows(request, rows, head=to_json(page)[:-1] + b',"items":', tail=b"}")


async def matching(
    items: Sequence[T], is_wanted: Callable[[str], bool] | None, name_of: Callable[[T], str]
) -> Sequence[T]:
    if is_wanted is None:
        return items
    return [item async for item in at_a_pace(items) if is_wanted(name_of(item))]


async def sorted_by_column(items: Sequence[T], wanted: Wanted, part_with: Callable[[T, str], Row]) -> list[T]:
    """The items by the column to sort by, up to the end of the page. Only the sorted values are kept, since
    all rows at once would take much memory.
    """
    column, deeper = wanted.sort[0], wanted.sort[1:]

    def key(item: T) -> tuple[int, Any]:
        value = part_with(item, column).get(column)
        return sort_key(value_at(value, deeper) if deeper else value)

    return await in_order(items, key, reverse=wanted.reverse, most=wanted.last())


def name_filter(text: str, *, use_regex: bool) -> Callable[[str], bool] | None:
    if not text:
        return None
    if not use_regex:
        part = text.lower()
        return lambda name: part in name.lower()
    if len(text) > PATTERN_LENGTH_MAX:
        raise BadRequest(f"name: the expression has more than {PATTERN_LENGTH_MAX} characters")
    try:
        pattern = Pattern(text, ignore_case=True)
    except ValueError as error:
        raise BadRequest(f"name: {error}") from None

    def is_wanted(name: str) -> bool:
        found = pattern.is_in(name)
        if pattern.is_too_slow:
            raise BadRequest(f"name: '{text}' takes too long")
        return found

    return is_wanted


def value_at(row: object, path: Sequence[str]) -> Any:
    """The value of a nested column; None if there is none."""
    value: Any = row
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def sort_key(value: object) -> tuple[int, Any]:
    """Puts values of any types in an order: none, numbers, texts, others."""
    if type(value) is int:
        return 1, value
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
