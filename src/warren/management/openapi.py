"""The OpenAPI description of the API, made from its endpoints, at `/api/openapi.json`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aiohttp import web

from warren.management.endpoint import Endpoint
from warren.management.json_text import json_response
from warren.management.rights import Right
from warren.management.schema import TEXT, record
from warren.version import __version__

PATH = "/api/openapi.json"
NAME_IN_PATH = re.compile(r"{(\w+)(?::[^}]*)?}")
EXAMPLES = {
    "vhost": "/",
    "queue": "orders",
    "exchange": "events",
    "user": "ops",
    "source": "events",
    "kind": "q",
    "destination": "orders",
    "properties_key": "order.%23",
    "port": "5672",
    "protocol": "amqp",
    "within": "1",
    "unit": "months",
}
"""Of names in paths."""
ERROR = record({"error": TEXT, "reason": TEXT})
BAD_REQUEST, NOT_AUTHORISED, FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS = 400, 401, 403, 404, 429
LOGINS = {"basic": {"type": "http", "scheme": "basic"}, "bearer": {"type": "http", "scheme": "bearer"}}


class Description:
    """Serves the description of all endpoints, itself included."""

    def __init__(self, others: Sequence[Endpoint]) -> None:
        self.others = others

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path=PATH,
                handler=self.get,
                summary="This description.",
                right=Right.PUBLIC,
                gives={"type": "object"},
            )
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        return json_response(describe_api([*self.others, *self.endpoints()]))


def describe_api(endpoints: Sequence[Endpoint]) -> dict[str, object]:
    paths: dict[str, dict[str, object]] = {}
    for endpoint in endpoints:
        path = NAME_IN_PATH.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "WarrenMQ", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": LOGINS,
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, object]:
    operation: dict[str, object] = {
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {str(status): content for status, content in sorted(_responses(endpoint).items())},
        "security": [] if endpoint.right is Right.PUBLIC else [{name: []} for name in LOGINS],
        "x-right": endpoint.right.name.lower(),
    }
    bodies = {"application/json": endpoint.takes, "multipart/form-data": endpoint.takes_form}
    content = {kind: {"schema": schema} for kind, schema in bodies.items() if schema is not None}
    if content:
        operation["requestBody"] = {"content": content}
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, object]]:
    in_path = [_in_path(name) for name in NAME_IN_PATH.findall(endpoint.path)]
    in_query: list[dict[str, object]] = [
        {"name": each.name, "in": "query", "schema": each.schema, "description": each.text}
        for each in endpoint.query
    ]
    return [*in_path, *in_query]


def _in_path(name: str) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string", "minLength": 1}
    described = {"name": name, "in": "path", "required": True, "schema": schema}
    return described | ({"example": EXAMPLES[name]} if name in EXAMPLES else {})


def _responses(endpoint: Endpoint) -> dict[int, dict[str, object]]:
    answers: dict[int, dict[str, object]] = {status: {"description": "done"} for status in endpoint.done}
    if endpoint.gives is not None:
        content = {endpoint.content_type: {"schema": endpoint.gives}}
        answers[200] = {"description": "the answer", "content": content}
    for status, schema in endpoint.others.items():
        answers[status] = {"description": "the answer", "content": {"application/json": {"schema": schema}}}
    refused = set(endpoint.refuses)
    if endpoint.takes is not None or endpoint.query:
        refused.add(BAD_REQUEST)
    if endpoint.right is not Right.PUBLIC:
        refused |= {NOT_AUTHORISED, FORBIDDEN, TOO_MANY_REQUESTS}
    if NAME_IN_PATH.search(endpoint.path):
        refused |= {BAD_REQUEST, NOT_FOUND}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return answers | {status: {"description": "refused", "content": error} for status in refused}
