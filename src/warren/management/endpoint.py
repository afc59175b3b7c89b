"""An endpoint of the API: its path, who may use it, what it takes and what it answers. The router and the
OpenAPI description are both made from endpoints, so that the description is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from aiohttp import web

from warren.amqp.errors import AccessRefused
from warren.management.audit import IS_ACCESS_TO_MESSAGES
from warren.management.errors import Handler, NotAuthorised
from warren.management.rights import Right, check_right
from warren.management.schema import Schema

SLASHES = "{slashes:/*}"


@dataclass(frozen=True)
class Parameter:
    """A parameter in the query of a URL."""

    name: str
    schema: Schema
    text: str


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    method: str
    path: str
    """As aiohttp writes it, with the patterns of `paths.py` for names."""
    handler: Handler
    summary: str
    """One sentence for the OpenAPI description."""
    right: Right = Right.MANAGEMENT
    """Who may use it. If the model refuses what a user asks for, the answer is 401, as in RabbitMQ; endpoints
    that RabbitMQ does not have, which are for any user, say 403.
    """
    query: tuple[Parameter, ...] = ()
    takes: Schema | None = None
    """The schema of the JSON body of a request; None if the body is not looked at."""
    takes_form: Schema | None = None
    """The schema of a form that may be sent (`multipart/form-data`) in the place of JSON."""
    gives: Schema | None = None
    """The schema of the JSON of answer 200; None if there is no such answer."""
    content_type: str = "application/json"
    """Of answer 200."""
    done: tuple[int, ...] = ()
    """Statuses of answers without content, such as 201 and 204."""
    others: Mapping[int, Schema] = field(default_factory=dict)
    """Further answers with content, by status: the schemas of their JSON."""
    is_list: bool = False
    """Whether it lists objects. Slashes may follow the path, as with RabbitMQ: Flower asks for `queues//`."""
    refuses: tuple[int, ...] = ()
    """Statuses of errors, besides those that follow from the rest: 400, 401, 403 and 404."""

    def route(self) -> web.RouteDef:
        async def checked(request: web.Request) -> web.StreamResponse:
            if self.right is Right.USER:
                request[IS_ACCESS_TO_MESSAGES] = True
            check_right(request, self.right)
            try:
                return await self.handler(request)
            except AccessRefused as error:
                if self.right is Right.USER:
                    raise
                raise NotAuthorised(error.text) from None

        if self.method == "GET":
            path = self.path + SLASHES if self.is_list else self.path
            return web.get(path, checked)  # which answers HEAD as well
        return web.route(self.method, self.path, checked)


def restricted(right: Right, *endpoints: Endpoint) -> list[Endpoint]:
    """The same endpoints, for users who have this right."""
    return [replace(endpoint, right=right) for endpoint in endpoints]


class Resource(Protocol):
    """A part of the API, in a file of its own."""

    def endpoints(self) -> list[Endpoint]: ...
