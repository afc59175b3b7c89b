"""Authentication of HTTP requests, by the broker's users, and what each user may see.

As in RabbitMQ, users with the tag `monitoring` or `administrator` see all vhosts, others those in which they
have permissions. Messages follow another rule: users who may read a queue over AMQP may read it here,
whatever their tags, and nobody else may.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Container

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
from warren.management.rights import USER, Right, user_of
from warren.session.peer import is_loopback

API = "/api/"


def authenticate(node: Node, public: Container[str]) -> Middleware:
    """Authenticates every request below `/api/`, or refuses it; but for `public` paths."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(API) and request.path not in public:
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


# --- what a user may see ---


def sees(user: User, vhost: str) -> bool:
    return vhost in user.permissions or Right.MONITORING.is_had_by(user)


def visible_vhosts(node: Node, request: web.Request) -> list[Vhost]:
    user = user_of(request)
    return [vhost for vhost in node.vhosts.values() if sees(user, vhost.name)]


def visible_vhost(node: Node, request: web.Request) -> Vhost:
    """The vhost that the path names."""
    name = request.match_info["vhost"]
    if not sees(user_of(request), name):
        raise NotAuthorised("User not authorised to access virtual host")
    vhost = node.vhosts.get(name)
    if vhost is None:
        raise ObjectNotFound(f"no vhost '{name}'")
    return vhost


def readable_queues(node: Node, request: web.Request) -> list[Queue]:
    """The queues that the user may read, in the vhost that the path names."""
    vhost = visible_vhost(node, request)
    access = Access(user_of(request), vhost.name)
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
    vhost = visible_vhost(node, request)
    access = Access(user_of(request), vhost.name)

    def find(name: str) -> Queue:
        access.check(Permission.READ, "queue", name)
        return vhost.queue_for(None, name)

    return find
