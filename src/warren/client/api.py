"""A client of the HTTP API of a broker: ours, or RabbitMQ's. One connection, one request at a time."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeAlias
from urllib.parse import quote, urlencode

from warren.client.http_url import HttpUrl
from warren.client.tls_socket import tls_context
from warren.client.uri import NO_FILES, UriTls

Row: TypeAlias = dict[str, Any]
"""An object of the API."""

ANSWER_SECONDS_MAX = 60.0
PAGE_SIZE = 500
OUT_OF_RANGE = "page_out_of_range"
ERROR_TEXT_MAX = 500
NOT_FOUND = 404
LOGIN_FAILED = "not_authorized"
GUEST = "guest"
REDIRECT_STATUS_MIN, ERROR_STATUS_MIN = 300, 400
REPEATABLE = {"GET", "PUT"}
"""Methods of requests that do no harm if they are carried out twice."""


class ApiError(Exception):
    """The broker refused a request; the text is its reason."""

    def __init__(
        self, status: int, error: str, reason: str, content: object = None, *, address: str = ""
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.address = address  # of the API that refused
        self.error = error  # a word for the kind of error, such as `bad_request`
        self.content = content  # the JSON that the broker answered, if it did


class Unreachable(Exception):
    """There is no broker, or none that speaks HTTP; the text says which address was tried."""


def path_of(*parts: str) -> str:
    """The path of an object of the API: names may have any character, and bytes that are not UTF-8. An empty
    name is refused: its path would be that of the whole list.
    """
    if "" in parts:
        raise ApiError(400, "bad_request", "a name is empty; the default exchange is amq.default")
    return "/api/" + "/".join(quote(part, safe="", errors="surrogateescape") for part in parts)


class Api:
    """Speaks to one broker. The connection is made by the first request, and made again if it was dropped."""

    def __init__(
        self,
        url: HttpUrl,
        *,
        tls: UriTls = NO_FILES,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
    ) -> None:
        """Raises `ClientError` if the files that `tls` names cannot be read."""
        self.url = url
        self._connection = _connection(url, tls, answer_seconds_max)
        self.user = url.user or GUEST
        login = f"{self.user}:{GUEST if url.password is None else url.password}"
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(_bytes(login)).decode(),
            "Content-Type": "application/json",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def get(self, *parts: str, query: Mapping[str, str] | None = None) -> Any:
        return self.request("GET", path_of(*parts), query=query)

    def put(self, *parts: str, content: object) -> None:
        self.request("PUT", path_of(*parts), content=content)

    def post(self, *parts: str, content: object) -> Any:
        return self.request("POST", path_of(*parts), content=content)

    def delete(
        self, *parts: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.request("DELETE", path_of(*parts), query=query, headers=headers)

    def pages(self, *parts: str, query: Mapping[str, str] | None = None) -> Iterator[list[Row]]:
        """The items of a list, page by page. Lists that have no pages come as one."""
        number, last = 1, 1
        while number <= last:
            asked = {**(query or {}), "page": str(number), "page_size": str(PAGE_SIZE)}
            try:
                answer = self.get(*parts, query=asked)
            except ApiError as error:
                if number > 1 and error.error == OUT_OF_RANGE:
                    return  # the list has become shorter meanwhile
                raise
            if isinstance(answer, list):
                yield answer
                return
            yield answer["items"]
            number, last = number + 1, answer["page_count"]

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of the answer; None if it has none."""
        target = self.url.path + path + (f"?{urlencode(query)}" if query else "")
        body = None if content is None else json.dumps(content).encode()
        sent = {name: _bytes(value) for name, value in {**self._headers, **(headers or {})}.items()}
        status, reason, text = self._exchange(method, target, body, sent)
        answer = _json_in(text)
        if status >= ERROR_STATUS_MIN:
            raise self._with_login(_refusal(status, reason, answer, text, self.url.address))
        if status >= REDIRECT_STATUS_MIN or (text and answer is None):
            raise Unreachable(f"{self.url.address} is no HTTP API of a broker: it answers {status} {reason}")
        return answer

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, bytes]
    ) -> tuple[int, str, bytes]:
        was_open = self._connection.sock is not None
        try:
            return self._once(method, target, body, headers)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            if not was_open or method not in REPEATABLE:
                raise self._unreachable(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        try:  # a connection that was idle may have been closed by the broker
            return self._once(method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _once(
        self, method: str, target: str, body: bytes | None, headers: dict[str, bytes]
    ) -> tuple[int, str, bytes]:
        try:
            self._connection.request(method, target, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.reason, answer.read()
        except BaseException:
            self._connection.close()  # the rest of an answer must not be taken for the next one
            raise

    def _with_login(self, error: ApiError) -> ApiError:
        """If the login failed, tell whose, and where."""
        if error.error != LOGIN_FAILED:
            return error
        text = f"{error}: user '{self.user}' at {self.url.address}"
        return ApiError(error.status, error.error, text, error.content, address=error.address)

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unreachable(f"cannot trust {self.url.address}: {error.verify_message}")
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
            why = "what answers there does not speak HTTP"
        return Unreachable(f"cannot reach the HTTP API at {self.url.address}: {why}")


def _connection(url: HttpUrl, tls: UriTls, timeout_s: float) -> http.client.HTTPConnection:
    if url.scheme == "http":
        return http.client.HTTPConnection(url.host, url.port, timeout=timeout_s)
    context = tls_context(tls)
    return http.client.HTTPSConnection(url.host, url.port, timeout=timeout_s, context=context)


def _bytes(text: str) -> bytes:
    """As a header has it. What the command line has of other encodings than UTF-8 stays as it is."""
    return text.encode("utf-8", "surrogateescape")


def _json_in(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _refusal(status: int, reason: str, answer: object, text: bytes, address: str) -> ApiError:
    """RabbitMQ answers `{"error": …, "reason": …}`, and some of its checks only a reason."""
    if isinstance(answer, dict):
        error = str(answer.get("error", ""))
        told = answer.get("reason", error)
        words = told if isinstance(told, str) else json.dumps(told)
        return ApiError(status, error, words, answer, address=address)
    more = text.decode("utf-8", "replace").strip()[:ERROR_TEXT_MAX]
    return ApiError(status, reason, more or f"{status} {reason}", address=address)
