"""The errors of requests, and the one place that turns an exception into an answer, in RabbitMQ's form:

{"error": "Object Not Found", "reason": "no queue 'q' in vhost '/'"}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil
from typing import ClassVar, TypeAlias

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from warren.amqp.errors import AccessRefused, AmqpError, NotFound
from warren.management.json_text import answer_under_way, forget_answer, json_response

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
REALM = 'Basic realm="WarrenMQ"'
CHANGING = (hdrs.METH_PUT, hdrs.METH_POST)


class ApiError(Exception):
    """The request is wrong, or asks for too much; the text tells the client why."""

    status: ClassVar[int] = 400
    error: ClassVar[str] = "bad_request"
    headers: ClassVar[dict[str, str]] = {}


class BadRequest(ApiError):
    pass


class NotAuthorised(ApiError):
    """The user may not do this."""

    status, error, headers = 401, "not_authorised", {"WWW-Authenticate": REALM}


class LoginFailed(NotAuthorised):
    """RabbitMQ spells this one in American."""

    error = "not_authorized"

    def __init__(self) -> None:
        super().__init__("Login failed")


class Forbidden(ApiError):
    status, error = 403, "not_authorised"


class ObjectNotFound(ApiError):
    status, error = 404, "Object Not Found"
    error_of_changes = "not_found"  # RabbitMQ's word if the method is PUT or POST


class Unavailable(ApiError):
    """It cannot be done now, and perhaps later."""

    status, error = 503, "unavailable"


class TooManyRequests(ApiError):
    status, error = 429, "too_many_requests"

    def __init__(self, seconds: float) -> None:
        super().__init__("too many logins have failed; try again later")
        self.seconds = max(ceil(seconds), 1)  # after which it is worth to try again


class LeaderChanged(ApiError):
    status, error = 503, "service_unavailable"

    def __init__(self) -> None:
        super().__init__("a queue has another leader now: publish the message again, at the new leader")


class RangeNotSatisfiable(ApiError):
    status, error = 416, "range_not_satisfiable"

    def __init__(self, reason: str, size: int) -> None:
        super().__init__(reason)
        self.size = size


def answer_errors(report: Callable[[Exception], None]) -> Middleware:
    """Turns exceptions into answers. Those that are not the client's fault go to `report`."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - the client gets an answer to any error, or is cut off
            begun = answer_under_way(request)
            if begun is None:
                return answer(error, request.method, report)
            if not isinstance(error, ConnectionError):
                report(error)
            if request.transport is not None:
                request.transport.abort()  # so that the client does not take the part it got for the whole
            return begun
        finally:
            forget_answer(request)

    return middleware


def answer(error: Exception, method: str, report: Callable[[Exception], None]) -> web.Response:
    if isinstance(error, web.HTTPException):
        return _of_aiohttp(error, method)
    if isinstance(error, AmqpError):
        error = _of_model(error)
    if not isinstance(error, ApiError):
        report(error)
        return _response(500, "internal_error", "see the broker's log")
    headers = dict(error.headers)
    if isinstance(error, RangeNotSatisfiable):
        headers["Content-Range"] = f"bytes */{error.size}"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.seconds)
    name = error.error
    if isinstance(error, ObjectNotFound) and method in CHANGING:
        name = error.error_of_changes
    return _response(error.status, name, str(error), headers)


def _of_model(error: AmqpError) -> ApiError:
    if isinstance(error, AccessRefused):
        return Forbidden(error.text)
    if isinstance(error, NotFound):
        return ObjectNotFound(error.text)
    return BadRequest(error.text)


def _of_aiohttp(error: web.HTTPException, method: str) -> web.Response:
    """Errors of aiohttp: no such path, a method that the path does not have, or a body that is too large. As
    with RabbitMQ, OPTIONS tells which methods a path has.

    The request keeps the error, and the error's traceback keeps the request. Without the traceback there is
    no cycle, and both are freed without the garbage collector.
    """
    error.__traceback__ = None
    name = ObjectNotFound.error if error.status == ObjectNotFound.status else BadRequest.error
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    if method == hdrs.METH_OPTIONS and isinstance(error, web.HTTPMethodNotAllowed):
        return web.Response(headers=headers)
    return _response(error.status, name, error.reason, headers)


def _response(status: int, error: str, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    return json_response({"error": error, "reason": reason}, status=status, headers=headers)
