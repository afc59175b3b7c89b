"""Logs through a broker's HTTP API: for executors that share no disk with it.

    GET /api/segments/{vhost}                           which queues the user may read
    GET /api/segments/{vhost}/{queue}                   the segments of one queue, and what is acked in them
    POST /api/segments/{vhost}                          the same for many queues
    POST /api/streams/{vhost}                           where streams begin and end, now or when that changes
    GET /api/segments/{vhost}/{queue}/{base}?part=      bytes of one segment, by ranges
    PUT /api/streams/{vhost}/{queue}/offsets/{name}     how far a query is
    GET /api/definitions/{vhost}                        exchanges, queues and bindings

Each log keeps one connection open. Requests that only read are tried again when the connection breaks or the
broker answers 503; the PUT never is. If the broker has answered before, the tries go on long enough for it to
start again, so that a query which runs for weeks survives a restart.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from warren.pipeline.segments.errors import (
    BadOption,
    ReadError,
    Refused,
    SegmentGone,
    UnknownQueue,
    Unreachable,
)
from warren.pipeline.segments.log import (
    KINDS,
    Contents,
    QueueEnds,
    QueueRef,
    Slice,
    SourceSegment,
    pack_acked,
)

Json: TypeAlias = Any  # the API's answers; this module hands them out as the types of log.py

CHUNK_BYTES = 4 << 20
NAMES_MAX = 1_000  # of queues in one request
TIMEOUT_SECONDS = 60.0
PAUSES_SECONDS = (0.1, 0.3, 0.9)  # before each further try
LATER_PAUSES_SECONDS = (2.0, 4.0, 8.0, 15.0)  # then, if the broker has answered before: it may be restarting
BROKEN = (OSError, http.client.HTTPException)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def reason(self) -> str:
        """The broker's own words in an error."""
        try:
            told = json.loads(self.body)
        except ValueError:
            return f"HTTP {self.status}"
        return (
            str(told.get("reason") or told.get("error")) if isinstance(told, dict) else f"HTTP {self.status}"
        )


class HttpLog:
    can_locate = False
    chunk_bytes = CHUNK_BYTES

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url, self.user, self.password = url, user, password
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or parts.hostname is None:
            raise BadOption(f"the option url is '{url}', which is not like http://host:15672")
        self._prefix = parts.path.rstrip("/")  # of every path, if the API is behind a proxy
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._head = {"Authorization": f"Basic {secret}"}  # headers of every request
        self._connection: http.client.HTTPConnection | None = None  # opened by the next request if None
        self._has_answered = False  # whether a broker has ever answered
        # The last answer of `ends_of`: its vhost, its streams, and the version that the broker gave it.
        self._seen: tuple[str, tuple[str, ...], str] | None = None

    def __repr__(self) -> str:
        return f"HttpLog({self.url!r}, user={self.user!r})"

    def __reduce__(self) -> tuple[type[HttpLog], tuple[str, str, str], dict[str, bool]]:
        return HttpLog, (self.url, self.user, self.password), {"_has_answered": self._has_answered}

    # --- the log ---

    def queues(self, vhost: str) -> list[QueueRef]:
        answer = self._get(f"/api/segments/{_path(vhost)}")
        if answer.status == http.HTTPStatus.NOT_FOUND:
            raise Unreachable(f"no vhost '{vhost}' at {self.url}: change the option vhost")
        return [
            QueueRef(vhost, str(told["name"]), str(told.get("type", KINDS[0])))
            for told in self._content(answer, f"vhost '{vhost}'")
        ]

    def contents(self, vhost: str, name: str) -> Contents:
        answer = self._get(f"/api/segments/{_path(vhost, name)}")
        if answer.status == http.HTTPStatus.NOT_FOUND:
            raise UnknownQueue(vhost, name)
        return _contents(self._content(answer, f"queue '{name}'"))

    def contents_of(self, vhost: str, names: Sequence[str]) -> dict[str, Contents]:
        found: dict[str, Contents] = {}
        for some in _portions(names):
            answer = self._post(f"/api/segments/{_path(vhost)}", {"queues": some})
            for told in self._content(answer, _queues(names)):
                found[told["queue"]] = _contents(told)
        return found

    def ends_of(self, vhost: str, names: Sequence[str], *, wait_s: float = 0.0) -> dict[str, QueueEnds]:
        if len(names) > NAMES_MAX:
            return {
                name: ends for some in _portions(names) for name, ends in self.ends_of(vhost, some).items()
            }
        wanted: Json = {"queues": list(names)}
        seen = self._seen[2] if self._seen is not None and self._seen[:2] == (vhost, tuple(names)) else None
        if wait_s > 0 and seen is not None:
            wanted |= {"version": seen, "wait_ms": round(wait_s * 1000)}
        began = time.monotonic()
        told = self._content(self._post(f"/api/streams/{_path(vhost)}", wanted), _queues(names))
        self._seen = vhost, tuple(names), told["version"]
        if told["version"] == seen:  # a broker with too many waiting requests answers at once: wait here
            time.sleep(max(0.0, wait_s - (time.monotonic() - began)))
        return {each["queue"]: _ends(each) for each in told["queues"]}

    def definitions(self, vhost: str) -> Json:
        """The vhost's topology, in the form in which RabbitMQ exports one vhost."""
        what = f"vhost '{vhost}'"
        return self._content(self._get(f"/api/definitions/{_path(vhost)}"), what)

    def open(self, queue: QueueRef, segment: SourceSegment) -> _OpenRange:
        return _OpenRange(self, queue, segment)

    def read(self, path: str, at: int, size: int) -> Answer:
        return self._get(path, {"Range": f"bytes={at}-{at + size - 1}"})

    def put_offset(self, queue: QueueRef, reference: str, offset: int) -> None:
        path = f"/api/streams/{_path(queue.vhost, queue.name)}/offsets/{_path(reference)}"
        try:
            answer = self._ask(
                "PUT", path, {"Content-Type": "application/json"}, json.dumps({"offset": offset})
            )
        except BROKEN as error:
            self.close()
            raise self._unreachable(error) from error
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._refusal(answer, f"{queue}")

    # --- asking ---

    def _get(self, path: str, head: dict[str, str] | None = None) -> Answer:
        return self._retried(lambda: self._ask("GET", path, head or {}))

    def _post(self, path: str, wanted: Json) -> Answer:
        """A request that only reads, whose list of queues is too long for a path."""
        head, body = {"Content-Type": "application/json"}, json.dumps(wanted)
        return self._retried(lambda: self._ask("POST", path, head, body))

    def _retried(self, ask: Callable[[], Answer]) -> Answer:
        later = LATER_PAUSES_SECONDS if self._has_answered else ()
        for pause in (*PAUSES_SECONDS, *later, None):
            try:
                answer = ask()
            except BROKEN as error:
                self.close()
                if pause is None or isinstance(error, ssl.SSLError):
                    raise self._unreachable(error) from error
            else:
                if answer.status != http.HTTPStatus.SERVICE_UNAVAILABLE or pause is None:
                    return answer
            time.sleep(pause)
        raise AssertionError("the last try answers or raises")

    def _ask(self, method: str, path: str, head: dict[str, str], body: str | None = None) -> Answer:
        if self._connection is None:
            parts = urlsplit(self.url)
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            assert parts.hostname is not None
            self._connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
        self._connection.request(method, self._prefix + path, body, {**self._head, **head})
        with self._connection.getresponse() as response:
            answer = Answer(response.status, response.read())
        self._has_answered = True
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- errors ---

    def _content(self, answer: Answer, what: str) -> Json:
        if answer.status != http.HTTPStatus.OK:
            raise self._refusal(answer, what)
        try:
            return json.loads(answer.body)
        except ValueError:
            raise Unreachable(f"what answers at {self.url} is no WarrenMQ: change the option url") from None

    def _refusal(self, answer: Answer, what: str) -> ReadError:
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            return Refused(
                f"{self.url} does not let user '{self.user}' in: {answer.reason}: "
                "change the options user and password, or vhost"
            )
        if answer.status == http.HTTPStatus.FORBIDDEN:
            return Refused(f"user '{self.user}' may not read {what}: {answer.reason}: change the option user")
        return Unreachable(f"{self.url} answers for {what}: {answer.reason}: see the option url")

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"no broker answers at {self.url}: {error or type(error).__name__}: change the option url"
        )


def _path(*names: str) -> str:
    return "/".join(quote(name, safe="") for name in names)


def _portions(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[at : at + NAMES_MAX] for at in range(0, len(names), NAMES_MAX)]


def _queues(names: Sequence[str]) -> str:
    return f"queue '{names[0]}'" if len(names) == 1 else f"{len(names)} queues"


def _contents(told: Json) -> Contents:
    segments = tuple(_segment(each) for each in told["segments"])
    return Contents(_queue(told), told["first_offset"], told["next_offset"], segments)


def _queue(told: Json) -> QueueRef:
    return QueueRef(told["vhost"], told["queue"], told["type"], stream_id=told.get("stream_id", ""))


def _ends(told: Json) -> QueueEnds:
    queue = _queue(told)
    if not queue.is_stream:
        return QueueEnds(queue, 0, 0)
    first, end = told["first_offset"], told["next_offset"]
    if "base" not in told:
        return QueueEnds(queue, first, end)
    base = told["base"]
    tail = SourceSegment(base=base, size_bytes=told["bytes"], first_offset=base - 1, end_offset=end)
    return QueueEnds(queue, first, end, tail)


def _segment(told: Json) -> SourceSegment:
    acked = pack_acked((first + 1, first + 1 + count) for first, count in told["acked"])
    return SourceSegment(
        part=told["part"],
        base=told["base"],
        size_bytes=told["bytes"],
        first_offset=told["first_offset"],
        end_offset=told["last_offset"] + 1,
        acked=acked,
    )


class _OpenRange:
    def __init__(self, log: HttpLog, queue: QueueRef, segment: SourceSegment) -> None:
        self.log = log
        self.queue = queue
        part = quote(segment.part, safe="")
        self.path = f"/api/segments/{_path(queue.vhost, queue.name)}/{segment.base}?part={part}"
        if queue.stream_id:
            self.path += f"&stream_id={quote(queue.stream_id, safe='')}"
        self.name = log.url + self.path

    def close(self) -> None:
        """Nothing to do: the connection belongs to the log."""

    def read(self, at: int, size: int) -> bytes:
        answer = self.log.read(self.path, at, size)
        if answer.status == http.HTTPStatus.NOT_FOUND:
            raise SegmentGone(self.name)
        if answer.status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return b""
        if answer.status == http.HTTPStatus.OK:  # a proxy in between ignores ranges
            return answer.body[at : at + size]
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            raise self.log._refusal(answer, str(self.queue))
        return answer.body

    def locate(self, wanted: Slice) -> tuple[int, int]:
        return wanted.at, wanted.above
