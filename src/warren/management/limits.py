"""`/api/vhost-limits` and `/api/user-limits`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from aiohttp import web

from warren.broker.access import User
from warren.broker.commands import SetUserLimits, SetVhostLimits
from warren.broker.vhost import Vhost
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest
from warren.management.fields import fields_in
from warren.management.json_text import send_rows
from warren.management.limit_names import USER_LIMITS, VHOST_LIMITS, limit_in, limits_told
from warren.management.paths import NAME, USER, VHOST
from warren.management.rights import Right
from warren.management.schema import TABLE, TEXT, WHOLE, record, rows
from warren.management.users import find_user

EXPECTED = '{"value": number}'
ROWS = rows(record({"value": TABLE}, vhost=TEXT, user=TEXT))

_get = partial(Endpoint, method="GET", gives=ROWS)
_put = partial(Endpoint, method="PUT", right=Right.ADMINISTRATOR, takes=record({"value": WHOLE}), done=(204,))
_delete = partial(Endpoint, method="DELETE", right=Right.ADMINISTRATOR, done=(204,))


class Limits:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        of_vhost, of_user = f"/api/vhost-limits/{VHOST}", f"/api/user-limits/{USER}"
        return [
            _get(
                path="/api/vhost-limits",
                handler=self.of_vhosts,
                summary="The limits of all vhosts that the user sees.",
            ),
            _get(path=of_vhost, handler=self.of_vhost, summary="The limits of a vhost."),
            _put(
                path=f"{of_vhost}/{NAME}",
                handler=self.put_for_vhost,
                summary="Set a limit of a vhost; -1 for none.",
            ),
            _delete(
                path=f"{of_vhost}/{NAME}", handler=self.delete_for_vhost, summary="Remove a limit of a vhost."
            ),
            _get(path="/api/user-limits", handler=self.of_users, summary="The limits of all users."),
            _get(path=of_user, handler=self.of_user, summary="The limits of a user."),
            _put(
                path=f"{of_user}/{NAME}",
                handler=self.put_for_user,
                summary="Set a limit of a user; -1 for none.",
            ),
            _delete(
                path=f"{of_user}/{NAME}", handler=self.delete_for_user, summary="Remove a limit of a user."
            ),
        ]

    # --- vhosts ---

    async def of_vhosts(self, request: web.Request) -> web.StreamResponse:
        return await self._send_vhosts(request, visible_vhosts(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send_vhosts(request, [visible_vhost(self.node, request)])

    async def _send_vhosts(self, request: web.Request, vhosts: list[Vhost]) -> web.StreamResponse:
        told = ({"vhost": vhost.name, "value": limits_told(vhost.limits)} for vhost in vhosts)
        return await send_rows(request, (row for row in told if row["value"]))

    async def put_for_vhost(self, request: web.Request) -> web.StreamResponse:
        vhost, name = visible_vhost(self.node, request), VHOST_LIMITS.field_of(request.match_info["name"])
        return await self._change_vhost(vhost, name, limit_in(await fields_in(request, EXPECTED), "value"))

    async def delete_for_vhost(self, request: web.Request) -> web.StreamResponse:
        """As in RabbitMQ, a limit that there is not is not set: that is no error."""
        vhost, name = visible_vhost(self.node, request), request.match_info["name"]
        if not VHOST_LIMITS.has(name):
            return web.Response(status=204)
        return await self._change_vhost(vhost, VHOST_LIMITS.field_of(name), None)

    async def _change_vhost(self, vhost: Vhost, name: str, value: int | None) -> web.StreamResponse:
        await self.context.execute(SetVhostLimits(vhost=vhost.name, **asdict(vhost.limits) | {name: value}))
        return web.Response(status=204)

    # --- users ---

    async def of_users(self, request: web.Request) -> web.StreamResponse:
        return await self._send_users(request, [self.node.users[name] for name in sorted(self.node.users)])

    async def of_user(self, request: web.Request) -> web.StreamResponse:
        return await self._send_users(request, [find_user(self.node, request)])

    async def _send_users(self, request: web.Request, users: list[User]) -> web.StreamResponse:
        told = ({"user": user.name, "value": limits_told(user.limits)} for user in users)
        return await send_rows(request, (row for row in told if row["value"]))

    async def put_for_user(self, request: web.Request) -> web.StreamResponse:
        """As in RabbitMQ, it is 400 if the user is absent."""
        named, name = request.match_info["user"], USER_LIMITS.field_of(request.match_info["name"])
        value = limit_in(await fields_in(request, EXPECTED), "value")
        user = self.node.users.get(named)
        if user is None:
            raise BadRequest(f"no_such_user: {named}")
        return await self._change_user(user, name, value)

    async def delete_for_user(self, request: web.Request) -> web.StreamResponse:
        user, name = find_user(self.node, request), request.match_info["name"]
        if not USER_LIMITS.has(name):
            return web.Response(status=204)
        return await self._change_user(user, USER_LIMITS.field_of(name), None)

    async def _change_user(self, user: User, name: str, value: int | None) -> web.StreamResponse:
        await self.context.execute(SetUserLimits(user=user.name, **asdict(user.limits) | {name: value}))
        return web.Response(status=204)
