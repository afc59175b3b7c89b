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

from warren.amqp.errors import AccessRefused
from warren.broker.access import Access, Permission, User
from warren.broker.login import BEARER, Credentials, Outcome, Refusal
from warren.broker.login_attempts import HTTP
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.management.errors import Handler, LoginFailed, NotAuthorised, ObjectNotFound, TooManyRequests
from warren.management.rights import USER, Right, user_of
from warren.session.liveness import HANDSHAKE_SECONDS_MAX
from warren.session.peer import is_loopback

PROTECTED = ("/api/", "/metrics/")
"""Requests below these paths need a login, unless their endpoint is public."""
BASIC = "Basic"
NOT_ENTERED = "User not authorised to access virtual host"


def authenticate(node: Node, public: Container[str]) -> Middleware:
    """Authenticates every request below `PROTECTED`, or refuses it; but for `public` paths."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(PROTECTED) and request.path not in public:
            request[USER] = await _authenticated(node, request)
        return await handler(request)

    return middleware


async def _authenticated(node: Node, request: web.Request) -> User:
    """Who asks. A login that has to wait, since too many have failed, waits here as long as one over AMQP
    may; then the client is asked to come again.
    """
    given = credentials(request)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
            outcome = await _log_in(node, given)
    except TimeoutError:
        raise TooManyRequests(node.logins.throttle.seconds_to_wait(given.address, given.user)) from None
    if isinstance(outcome, Refusal):
        raise LoginFailed
    return outcome.user


async def _log_in(node: Node, given: Credentials) -> Outcome:
    answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def answer(outcome: Outcome) -> None:
        if not answered.done():
            answered.set_result(outcome)

    node.logins.attempt(given, answer, lambda: not answered.done())
    return await answered


def credentials(request: web.Request) -> Credentials:
    """From the header `Authorization`: user and password by RFC 7617, in UTF-8, or a token by RFC 6750."""
    scheme, _, value = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() == BASIC.lower():
        user, password = _user_and_password(value.strip())
        return _credentials(request, BASIC, user, password)
    if scheme.lower() == BEARER.lower():
        return _credentials(request, BEARER, "", value.strip().encode("utf-8", "surrogateescape"))
    raise LoginFailed


def _user_and_password(encoded: str) -> tuple[str, bytes]:
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
        if colon:
            return name.decode(), password
    except ValueError:
        raise LoginFailed from None
    raise LoginFailed


def _credentials(request: web.Request, mechanism: str, user: str, secret: bytes) -> Credentials:
    return Credentials(
        protocol=HTTP,
        mechanism=mechanism,
        user=user,
        secret=secret,
        address=request.remote or "",
        is_loopback=is_loopback(request.remote),
        source=f"HTTP from {request.remote}",
    )


# --- what a user may see ---


def sees(user: User, vhost: str) -> bool:
    return user.may_enter(vhost) or Right.MONITORING.is_had_by(user)


def visible_vhosts(node: Node, request: web.Request) -> list[Vhost]:
    """In order of their names."""
    user = user_of(request)
    return [node.vhosts[name] for name in sorted(node.vhosts) if sees(user, name)]


def visible_vhost(node: Node, request: web.Request) -> Vhost:
    """The vhost that the path names."""
    name = request.match_info["vhost"]
    if not sees(user_of(request), name):
        raise NotAuthorised(NOT_ENTERED)
    vhost = node.vhosts.get(name)
    if vhost is None:
        raise ObjectNotFound(f"no vhost '{name}'")
    return vhost


def entered_vhost(node: Node, request: web.Request) -> tuple[Vhost, Access]:
    """The vhost that the path names, and what the user may do there. Users with the tag `monitoring` see
    all vhosts, but need permissions to do anything in one.
    """
    vhost, user = visible_vhost(node, request), user_of(request)
    if not user.may_enter(vhost.name):
        raise AccessRefused(NOT_ENTERED)
    return vhost, Access(user, vhost.name)


def readable_queues(node: Node, request: web.Request) -> list[Queue]:
    """The queues that the user may read, in the vhost that the path names."""
    vhost, access = entered_vhost(node, request)
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
    vhost, access = entered_vhost(node, request)
    return lambda name: _checked(vhost, access, Permission.READ, name)


def allowed_queue(node: Node, request: web.Request, permission: Permission, name: str) -> Queue:
    """A queue in the vhost that the path names. Raises if the user lacks this permission for it."""
    vhost, access = entered_vhost(node, request)
    return _checked(vhost, access, permission, name)


def _checked(vhost: Vhost, access: Access, permission: Permission, name: str) -> Queue:
    access.check(permission, "queue", name)
    return vhost.queue_for(None, name)
