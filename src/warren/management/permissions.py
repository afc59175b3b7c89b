"""`/api/permissions` and `/api/topic-permissions`: those of all users, of a user, in a vhost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

from aiohttp import web

from warren.broker.access import Permissions, TopicPermissions, User
from warren.broker.commands import (
    ClearPermissions,
    ClearTopicPermissions,
    SetPermissions,
    SetTopicPermissions,
)
from warren.broker.node import Node
from warren.management.auth import visible_vhost
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint, restricted
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.fields import Fields, fields_in
from warren.management.listing import send_whole_list, whole_list_endpoint
from warren.management.paths import EXCHANGE, USER, VHOST
from warren.management.rights import Right
from warren.management.schema import TEXT, record, rows
from warren.management.users import find_user
from warren.server.pace import at_a_pace

Row: TypeAlias = dict[str, Any]
RowsOf: TypeAlias = Callable[[User], Iterator[Row]]

PERMISSIONS = record({"user": TEXT, "vhost": TEXT, "configure": TEXT, "write": TEXT, "read": TEXT})
TOPIC_PERMISSIONS = record({"user": TEXT, "vhost": TEXT, "exchange": TEXT, "write": TEXT, "read": TEXT})
ORDER = {"permissions": ("vhost", "user"), "topic-permissions": ("vhost", "user", "exchange")}
"""The columns by which lists go."""
EXPECTED = '{"configure": pattern, "write": pattern, "read": pattern}'
TOPIC_EXPECTED = '{"exchange": name, "write": pattern, "read": pattern}'

_get = partial(object_endpoint, right=Right.ADMINISTRATOR)
_put = partial(Endpoint, method="PUT", right=Right.ADMINISTRATOR, done=(201, 204))
_delete = partial(Endpoint, method="DELETE", right=Right.ADMINISTRATOR, done=(204,))


class UserPermissions:
    """What users may do with queues and exchanges, by their names."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/permissions/{VHOST}/{USER}"
        return [
            *_lists(self.node, "permissions", permissions_of),
            _get(path=one, handler=self.get, summary="What a user may do in a vhost.", gives=PERMISSIONS),
            _put(
                path=one,
                handler=self.put,
                summary="Set what a user may do in a vhost.",
                takes=record({"configure": TEXT, "write": TEXT, "read": TEXT}),
            ),
            _delete(path=one, handler=self.delete, summary="Take away all permissions of a user in a vhost."),
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        return send_object(request, _found(self.node, request, permissions_of)[0])

    async def put(self, request: web.Request) -> web.StreamResponse:
        user, vhost = _user_and_vhost(self.node, request)
        granted = permissions_in(await fields_in(request, EXPECTED))
        is_new = vhost not in user.permissions
        await self.context.execute(SetPermissions(user=user.name, vhost=vhost, permissions=granted))
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        [row] = _found(self.node, request, permissions_of)
        await self.context.execute(ClearPermissions(user=row["user"], vhost=row["vhost"]))
        return web.Response(status=204)


class UserTopicPermissions:
    """Which routing keys users may use with an exchange."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/topic-permissions/{VHOST}/{USER}"
        return [
            *_lists(self.node, "topic-permissions", topic_permissions_of),
            _get(
                path=one,
                handler=self.get,
                summary="The topic permissions of a user in a vhost.",
                gives=rows(TOPIC_PERMISSIONS),
            ),
            _put(
                path=one,
                handler=self.put,
                summary="Set the topic permissions of a user for an exchange.",
                takes=record({"exchange": TEXT, "write": TEXT, "read": TEXT}),
            ),
            _delete(
                path=one,
                handler=self.delete,
                summary="Remove the topic permissions of a user in a vhost: any routing key is allowed.",
            ),
            _get(
                path=f"{one}/{EXCHANGE}",
                handler=self.get,
                summary="The topic permissions of a user for one exchange.",
                gives=rows(TOPIC_PERMISSIONS),
            ),
            _delete(
                path=f"{one}/{EXCHANGE}",
                handler=self.delete,
                summary="Remove the topic permissions of a user for one exchange.",
            ),
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        return send_object(request, self._found(request))

    async def put(self, request: web.Request) -> web.StreamResponse:
        user, vhost = _user_and_vhost(self.node, request)
        fields = await fields_in(request, TOPIC_EXPECTED)
        exchange, granted = fields.name("exchange"), topic_permissions_in(fields)
        is_new = not any(named == vhost for named, _ in user.topic_permissions)
        await self.context.execute(
            SetTopicPermissions(user=user.name, vhost=vhost, exchange=exchange, permissions=granted)
        )
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        await self.context.execute(
            *(
                ClearTopicPermissions(user=row["user"], vhost=row["vhost"], exchange=row["exchange"])
                for row in self._found(request)
            )
        )
        return web.Response(status=204)

    def _found(self, request: web.Request) -> list[Row]:
        """Those for the exchange that the path names; all, if it names none."""
        exchange = request.match_info.get("exchange")
        found = _found(self.node, request, topic_permissions_of)
        return [row for row in found if exchange is None or row["exchange"] == exchange]


# --- rows of users ---


def permissions_of(user: User) -> Iterator[Row]:
    for vhost, granted in list(user.permissions.items()):
        patterns = {"configure": granted.configure, "write": granted.write, "read": granted.read}
        yield {"user": user.name, "vhost": vhost, **patterns}


def topic_permissions_of(user: User) -> Iterator[Row]:
    for (vhost, exchange), granted in list(user.topic_permissions.items()):
        patterns = {"write": granted.write, "read": granted.read}
        yield {"user": user.name, "vhost": vhost, "exchange": exchange, **patterns}


def _lists(node: Node, kind: str, rows_of: RowsOf) -> list[Endpoint]:
    """The endpoints that list what all users have, what one has, and what users have in a vhost. Their rows
    go by the names of users.
    """

    async def all_of(request: web.Request) -> web.StreamResponse:
        return await _send(request, _rows(node.users.values()))

    async def of_user(request: web.Request) -> web.StreamResponse:
        return await _send(request, _rows([find_user(node, request)]))

    async def of_vhost(request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(node, request).name
        return await _send(request, (row for row in _rows(node.users.values()) if row["vhost"] == vhost))

    def _rows(users: Iterable[User]) -> Iterator[Row]:
        return (row for user in list(users) for row in rows_of(user))

    async def _send(request: web.Request, found: Iterator[Row]) -> web.StreamResponse:
        rows = [row async for row in at_a_pace(found)]
        return await send_whole_list(
            request, rows, lambda row: row, lambda row: str(row["user"]), itemgetter(*ORDER[kind])
        )

    words = kind.replace("-", " ")
    return restricted(
        Right.ADMINISTRATOR,
        whole_list_endpoint(f"/api/{kind}", all_of, f"All {words} of all users."),
        whole_list_endpoint(f"/api/users/{USER}/{kind}", of_user, f"The {words} of a user."),
        whole_list_endpoint(f"/api/vhosts/{VHOST}/{kind}", of_vhost, f"The {words} of all users in a vhost."),
    )


def _found(node: Node, request: web.Request, rows_of: RowsOf) -> list[Row]:
    """The rows of the user and the vhost that the path names; 404 if there are none."""
    user, vhost = find_user(node, request), visible_vhost(node, request)
    found = [row for row in rows_of(user) if row["vhost"] == vhost.name]
    if not found:
        raise ObjectNotFound(f"no permissions of user '{user.name}' in vhost '{vhost.name}'")
    return found


def _user_and_vhost(node: Node, request: web.Request) -> tuple[User, str]:
    """Those that the path names, as RabbitMQ finds them for a change: 400 if one is missing."""
    name, vhost = request.match_info["user"], request.match_info["vhost"]
    user = node.users.get(name)
    if user is None:
        raise BadRequest(f"vhost_or_user_not_found: no user '{name}'")
    if vhost not in node.vhosts:
        raise BadRequest(f"vhost_or_user_not_found: no vhost '{vhost}'")
    return user, vhost


# --- fields ---


def permissions_in(fields: Fields) -> Permissions:
    try:
        return Permissions(fields.text("configure"), fields.text("write"), fields.text("read"))
    except ValueError as error:
        raise BadRequest(f"{fields.what}{error}") from None


def topic_permissions_in(fields: Fields) -> TopicPermissions:
    try:
        return TopicPermissions(fields.text("write"), fields.text("read"))
    except ValueError as error:
        raise BadRequest(f"{fields.what}{error}") from None
