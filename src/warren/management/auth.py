"""Authentication of HTTP requests, by the broker's users, and what each user may see.

As in RabbitMQ, a user needs one of the tags `management`, `policymaker`, `monitoring` or `administrator` for
the API. With the last two a user sees all vhosts, with the others those in which the user has permissions.
Messages follow another rule: users who may read a queue over AMQP may read it here, whatever their tags, and
nobody else may.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from collections.abc import Callable

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from warren.broker.access import Access, Permission, User
from warren.broker.events import AuthenticationFailed
from warren.broker.login import expected_password
from warren.broker.node import Node
from warren.broker.passwords import PasswordHash
from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.management.errors import Handler, NotAuthorised, ObjectNotFound

API = "/api/"
ADMINISTRATOR = "administrator"
MANAGERS = frozenset({"management", "policymaker", "monitoring", ADMINISTRATOR})
SEE_ALL_VHOSTS = frozenset({"monitoring", ADMINISTRATOR})
USER = web.RequestKey("USER", User)


def authenticate(node: Node) -> Middleware:
    """Authenticates every request below `/api/`, or refuses it."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(API):
            request[USER] = await _authenticated(node, request)
        return await handler(request)

    return middleware


async def _authenticated(node: Node, request: web.Request) -> User:
    name, password = credentials(request.headers.get(hdrs.AUTHORIZATION, ""))
    stored, refusal = expected_password(node, name, is_loopback=is_loopback(request.remote))
    right = node.passwords.knows(name, stored, password) or await _verify(node, name, stored, password)
    user = node.users.get(name)
    if user is None or not right:
        node.events.emit(AuthenticationFailed(f"HTTP from {request.remote}", name, refusal))
        raise NotAuthorised("Login failed")
    return user


def credentials(header: str) -> tuple[str, bytes]:
    """User and password from the header `Authorization`, by RFC 7617, in UTF-8."""
    scheme, _, encoded = header.partition(" ")
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = raw.partition(b":")
        if scheme.lower() != "basic" or not colon:
            raise NotAuthorised("Login failed")
        return name.decode(), password
    except ValueError:
        raise NotAuthorised("Login failed") from None


async def _verify(node: Node, user: str, stored: PasswordHash, password: bytes) -> bool:
    """Verify the password in a thread, since hashing takes long on purpose."""
    verified: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    node.passwords.verify(
        user, stored, password, lambda right: None if verified.done() else verified.set_result(right)
    )
    return await verified


def is_loopback(remote: str | None) -> bool:
    return remote is not None and ipaddress.ip_address(remote.partition("%")[0]).is_loopback


# --- what a user may see ---


def user_of(request: web.Request) -> User:
    return request[USER]


def manager(request: web.Request) -> User:
    user = user_of(request)
    if not user.tags & MANAGERS:
        raise NotAuthorised("Not management user")
    return user


def administrator(request: web.Request) -> User:
    user = user_of(request)
    if ADMINISTRATOR not in user.tags:
        raise NotAuthorised("Not administrator user")
    return user


def monitor(request: web.Request) -> User:
    """The user of a request about the node or all of its vhosts, who must be a monitor."""
    user = user_of(request)
    if not user.tags & SEE_ALL_VHOSTS:
        raise NotAuthorised("Not monitor user")
    return user


def sees(user: User, vhost: str) -> bool:
    return vhost in user.permissions or bool(user.tags & SEE_ALL_VHOSTS)


def visible_vhosts(node: Node, user: User) -> list[Vhost]:
    return [vhost for vhost in node.vhosts.values() if sees(user, vhost.name)]


def visible_vhost(node: Node, user: User, name: str) -> Vhost:
    if not sees(user, name):
        raise NotAuthorised("User not authorised to access virtual host")
    vhost = node.vhosts.get(name)
    if vhost is None:
        raise ObjectNotFound(f"no vhost '{name}'")
    return vhost


def readable_queues(node: Node, request: web.Request) -> list[Queue]:
    """The queues that the user may read, in the vhost that the path names."""
    user = user_of(request)
    vhost = visible_vhost(node, user, request.match_info["vhost"])
    access = Access(user, vhost.name)
    return [queue for queue in vhost.queues.values() if _is_readable(queue, access)]


def _is_readable(queue: Queue, access: Access) -> bool:
    return queue.owner is None and access.allows(Permission.READ, queue.name)


def readable_queue(node: Node, request: web.Request) -> Queue:
    """The queue that the path names. Raises if the user may not read it."""
    return finder(node, request)(request.match_info["queue"])


def finder(node: Node, request: web.Request) -> Callable[[str], Queue]:
    """A function that finds queues by name in the vhost that the path names. The function raises if there is
    no such queue, or if the user may not read it.
    """
    user = user_of(request)
    vhost = visible_vhost(node, user, request.match_info["vhost"])
    access = Access(user, vhost.name)

    def find(name: str) -> Queue:
        access.check(Permission.READ, "queue", name)
        return vhost.queue_for(None, name)

    return find
