"""Columns that a request asks for, of the rows of a list or of one object.

    ?columns=name,message_stats.publish,consumer_details.consumer_tag

Dots lead into nested objects, also into those in a list. What is not there is left out.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from aiohttp import web

from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import Handler
from warren.management.json_text import json_response
from warren.management.rights import Right
from warren.management.schema import TABLE, TEXT, Schema

Columns: TypeAlias = "dict[str, Columns | None]"
"""By name: None for all that is there, or the columns of the nested object."""

COLUMNS = Parameter("columns", TEXT, "Names of columns, separated by commas: give only these.")


def columns_in(request: web.Request) -> Columns:
    """Empty if all columns are asked for."""
    columns: Columns = {}
    for path in request.query.get(COLUMNS.name, "").split(","):
        names = [name for name in path.split(".") if name]
        place: Columns | None = columns
        for name in names[:-1]:
            place = None if place is None else place.setdefault(name, {})
        if names and place is not None:  # else all of it is asked for already
            place[names[-1]] = None
    return columns


def chosen(value: Any, columns: Columns) -> Any:
    """These columns of an object, or of each object in a list."""
    if isinstance(value, dict):
        return {
            name: value[name] if below is None else chosen(value[name], below)
            for name, below in columns.items()
            if name in value
        }
    return [chosen(each, columns) for each in value] if isinstance(value, list) else value


def send_object(request: web.Request, value: object) -> web.Response:
    """Send an object, or a short list of them, with the columns that the query asks for."""
    columns = columns_in(request)
    return json_response(chosen(value, columns) if columns else value)


def object_endpoint(
    path: str,
    handler: Handler,
    summary: str,
    query: tuple[Parameter, ...] = (),
    *,
    right: Right = Right.MANAGEMENT,
    gives: Schema = TABLE,
) -> Endpoint:
    """An endpoint whose handler uses `send_object`; `query` are further parameters."""
    return Endpoint(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        right=right,
        query=(*query, COLUMNS),
        gives={"anyOf": [gives, _some_columns_of(gives)]},
    )


def _some_columns_of(schema: Schema) -> Schema:
    """The same without fields that have to be there."""
    if schema.get("type") == "array":
        return {"type": "array", "items": TABLE}
    return TABLE
