"""`/api/users`: users, their passwords and tags; and `/api/auth/hash_password`."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from aiohttp import web

from warren.broker.access import User
from warren.broker.commands import Command, DeleteUser, PutUser, SetUserLimits
from warren.broker.node import Node
from warren.broker.passwords import (
    RABBIT_SALT_BYTES,
    RABBIT_SHA256,
    SALT_BYTES,
    SCRYPT,
    PasswordHash,
    hash_password,
    rabbit_hash,
)
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint, restricted
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.fields import Fields, fields_in, name_in
from warren.management.json_text import json_response
from warren.management.limit_names import OF_RABBITMQ, USER_LIMITS, limits_told
from warren.management.listing import list_endpoint, send_list
from warren.management.rights import Right
from warren.management.schema import TEXT, WORDS, record, rows

EXPECTED = '{"password": text, "tags": text}, or with "password_hash" in the place of "password"'
OWN_LIMITS = "warren_limits"  # the field of exports with limits that RabbitMQ has not
ONE_USER = "{user:(?!bulk-delete$|without-permissions$)[^/]+}"
"""As in RabbitMQ, users of these names have no path of their own."""
BULK_EXPECTED = '{"users": [names]}'

_get = partial(Endpoint, method="GET", right=Right.ADMINISTRATOR)
_put = partial(Endpoint, method="PUT", right=Right.ADMINISTRATOR, done=(201, 204))
_post = partial(Endpoint, method="POST", right=Right.ADMINISTRATOR)
_delete = partial(Endpoint, method="DELETE", right=Right.ADMINISTRATOR, done=(204,))


class Users:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one = f"/api/users/{ONE_USER}"
        return [
            *restricted(
                Right.ADMINISTRATOR,
                list_endpoint("/api/users", self.list_all, "All users."),
                list_endpoint(
                    "/api/users/without-permissions",
                    self.list_without_permissions,
                    "The users who have no permissions in any vhost.",
                ),
            ),
            _post(
                path="/api/users/bulk-delete",
                handler=self.delete_many,
                summary="Delete users, and close their connections.",
                takes=record({"users": rows(TEXT)}),
                done=(204,),
            ),
            object_endpoint(one, self.get, "One user.", right=Right.ADMINISTRATOR),
            _put(
                path=one,
                handler=self.put,
                summary="Make or change a user. Without a password, nobody can log in as this user.",
                takes=record({"tags": WORDS}, password=TEXT, password_hash=TEXT, hashing_algorithm=TEXT),
            ),
            _delete(
                path=one,
                handler=self.delete,
                summary="Delete a user, and close the user's connections.",
            ),
            _get(
                path="/api/auth/hash_password/{password:[^/]+}",
                handler=self.hash_in_path,
                summary="The hash of a password, for `password_hash` of a user.",
                gives=record({"ok": TEXT}),
            ),
            _post(
                path="/api/auth/hash_password",
                handler=self.hash_in_body,
                summary="The same, with a password that is not in the path, which logs may show.",
                takes=record({"password": TEXT}),
                gives=record({"ok": TEXT}),
            ),
        ]

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, list(self.node.users.values()))

    async def list_without_permissions(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, [user for user in self.node.users.values() if not user.permissions])

    async def _send(self, request: web.Request, users: list[User]) -> web.StreamResponse:
        return await send_list(request, users, describe, order=attrgetter("name"))

    async def get(self, request: web.Request) -> web.StreamResponse:
        return send_object(request, describe(find_user(self.node, request)))

    async def put(self, request: web.Request) -> web.StreamResponse:
        name = name_in(request, "user")
        is_new = name not in self.node.users
        commands = await user_commands(self.context, name, await fields_in(request, EXPECTED))
        await self.context.execute(*commands)
        return web.Response(status=201 if is_new else 204)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        await self.context.execute(DeleteUser(name=find_user(self.node, request).name))
        return web.Response(status=204)

    async def delete_many(self, request: web.Request) -> web.StreamResponse:
        names = set((await fields_in(request, BULK_EXPECTED)).names("users"))
        unknown = names - self.node.users.keys()
        if unknown:
            raise BadRequest(f"no_such_user: {', '.join(sorted(unknown))}")
        await self.context.execute(*(DeleteUser(name=name) for name in sorted(names)))
        return web.Response(status=204)

    async def hash_in_path(self, request: web.Request) -> web.StreamResponse:
        return self._hashed(request.match_info["password"])

    async def hash_in_body(self, request: web.Request) -> web.StreamResponse:
        return self._hashed((await fields_in(request, '{"password": text}')).whole_text("password"))

    def _hashed(self, password: str) -> web.StreamResponse:
        """In RabbitMQ's own way, which is quick: what is hashed here may be meant for RabbitMQ."""
        salt = self.node.world.random_bytes(RABBIT_SALT_BYTES)
        return json_response({"ok": rabbit_hash(RABBIT_SHA256, password, salt).value})


def find_user(node: Node, request: web.Request) -> User:
    """The user that the path names."""
    name = request.match_info["user"]
    user = node.users.get(name)
    if user is None:
        raise ObjectNotFound(f"no user '{name}'")
    return user


def describe(user: User) -> dict[str, object]:
    return {
        "name": user.name,
        "password_hash": "" if user.password is None else user.password.value,
        "hashing_algorithm": RABBIT_SHA256 if user.password is None else user.password.algorithm,
        "tags": sorted(user.tags),
        "limits": limits_told(user.limits),
    }


def describe_for_export(user: User) -> dict[str, object]:
    """The limits that RabbitMQ has not are apart, where it does not look."""
    limits = limits_told(user.limits)
    told = describe(user) | {"limits": {name: limits[name] for name in limits if name in OF_RABBITMQ}}
    own = {name: limits[name] for name in limits if name not in OF_RABBITMQ}
    return {**told, OWN_LIMITS: own} if own else told


async def user_commands(
    context: Context, name: str, fields: Fields, default_algorithm: str = RABBIT_SHA256
) -> list[Command]:
    """The commands that make a user, or change the user, as these fields say. `default_algorithm` is that of
    a hash that comes without one.
    """
    tags = fields.words("tags", None if "administrator" not in fields else "")
    if "administrator" in fields and fields.flag("administrator"):  # as very old files have it
        tags |= {"administrator"}
    password = await _password_in(context, fields, default_algorithm)
    commands: list[Command] = [PutUser(name=name, password=password, tags=tags)]
    if "limits" in fields or OWN_LIMITS in fields:
        limits = USER_LIMITS.values_in(fields.fields("limits"))
        limits |= USER_LIMITS.values_in(fields.fields(OWN_LIMITS))
        commands.append(SetUserLimits(user=name, **limits))
    return commands


async def _password_in(context: Context, fields: Fields, default_algorithm: str) -> PasswordHash | None:
    """None without a password or hash, or if it is empty: the user cannot log in with any password."""
    if "password" in fields and "password_hash" in fields:
        raise BadRequest(f"{fields.what}both password and password_hash are given")
    algorithm = fields.text("hashing_algorithm", default_algorithm)
    if "password_hash" in fields:
        value = fields.text("password_hash")
        try:
            return PasswordHash(algorithm, value) if value else None
        except ValueError as error:
            raise BadRequest(f"{fields.what}password_hash: {error}") from None
    password = fields.whole_text("password", "")
    if not password:
        return None
    random_bytes = context.node.world.random_bytes
    if "hashing_algorithm" not in fields or algorithm == SCRYPT:
        return await context.in_thread(hash_password, password, random_bytes(SALT_BYTES))
    try:
        return rabbit_hash(algorithm, password, random_bytes(RABBIT_SALT_BYTES))
    except ValueError as error:
        raise BadRequest(f"{fields.what}hashing_algorithm: {error}") from None
