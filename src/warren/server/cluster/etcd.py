"""etcd, through the JSON gateway of its v3 API: transactions, ranges and watches. Leases, locks and elections
are not used.

What always holds:
- A transaction is sent to one endpoint at most, unless it surely has not reached the one before. So an answer
  is one of four (`Outcome`), and only the caller, who can read, may repeat what is UNKNOWN.
- A read is linearizable: it has all that was written before it was asked for.
- A watch tells every change since its revision once and in order, over any number of connections; or it
  raises `Compacted`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import aiohttp

from warren.cluster.transactions import Answer, Changed, KeyValue, Outcome, Transaction
from warren.server.cluster.endpoints import Endpoints
from warren.server.cluster.etcd_errors import (
    Compacted,
    EtcdError,
    Failed,
    Refused,
    TokenEnded,
    Unreachable,
    error_of,
)
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.cluster.etcd_text import (
    Json,
    changes,
    encoded,
    key_values,
    keys_read,
    prefix_end,
    reads_request,
    revision_of,
    transaction_answer,
    transaction_request,
)
from warren.server.cluster.silence import notice_silence

T = TypeVar("T")

CONNECT_SECONDS_MAX = 2.0
ANSWER_SECONDS_MAX = 5.0  # for a request; a watch that is open waits for ever
ANSWER_BYTES_MAX = 256 * 1024 * 1024
PAGE_KEYS = 5_000
PAGES_MAX = 10_000  # of one load
TRIES_MAX = 3  # of a load whose revision was compacted meanwhile
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0)  # between the attempts of a watch to connect; the last one stays
HTTP_OK = 200


class Loaded(NamedTuple):
    """All keys of a prefix at one revision."""

    revision: int
    kvs: list[KeyValue]


class Status(NamedTuple):
    version: str
    revision: int
    database_bytes: int
    has_leader: bool


class Etcd:
    """A client of one etcd cluster. Make it on the event loop, and `close` it."""

    def __init__(
        self,
        settings: EtcdSettings,
        now: Callable[[], float],
        *,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self.settings = settings
        self.endpoints = Endpoints(settings.endpoints, now)
        self.token = ""  # of our user; empty until we have logged in, or without a user
        self.timeout = aiohttp.ClientTimeout(total=answer_seconds_max, sock_connect=CONNECT_SECONDS_MAX)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=settings.tls(), limit=0, socket_factory=_socket),
            timeout=self.timeout,
        )

    async def close(self) -> None:
        await self.session.close()

    # --- what can be asked ---

    async def txn(self, wanted: Transaction) -> Answer:
        """Never raises for what etcd or the network do: the outcome says it."""
        try:
            return await self.write(wanted)
        except Unreachable as error:
            return Answer(Outcome.UNKNOWN if error.was_sent else Outcome.NOT_SENT, reason=str(error))
        except EtcdError as error:
            return Answer(Outcome.NOT_SENT if error.was_refused else Outcome.UNKNOWN, reason=str(error))

    async def write(self, wanted: Transaction) -> Answer:
        """The same for whoever can begin anew: whether it was done or a compare failed; EtcdError if nothing
        was done, or nobody knows.
        """
        answer = await self._ask("kv/txn", transaction_request(wanted))
        return _understood(lambda: transaction_answer(wanted, answer))

    async def get(self, key: str) -> KeyValue | None:
        """A key as it is now."""
        answer = await self._read({"key": encoded(key)})
        found = _understood(lambda: key_values(answer))
        return found[0] if found else None

    async def get_all(self, keys: Sequence[str]) -> tuple[KeyValue | None, ...]:
        """Keys as they are now, `OPERATIONS_MAX` of them at most, by one request."""
        answer = await self._read(reads_request(keys), "kv/txn")
        return _understood(lambda: keys_read(keys, answer))

    async def load(self, prefix: str) -> Loaded:
        """All keys that begin with this, by pages at one revision."""
        for attempt in range(TRIES_MAX):
            try:
                return await self._load(prefix)
            except Compacted:
                if attempt == TRIES_MAX - 1:
                    raise
        raise AssertionError("the last attempt has returned or raised")

    async def _load(self, prefix: str) -> Loaded:
        wanted: Json = {"key": encoded(prefix), "range_end": encoded(prefix_end(prefix)), "limit": PAGE_KEYS}
        found: list[KeyValue] = []
        revision = 0
        for _ in range(PAGES_MAX):
            answer = await self._read(wanted)
            revision, kvs = _understood(partial(_page, answer, revision))
            found += kvs
            if not answer.get("more"):
                return Loaded(revision, found)
            wanted |= {"key": encoded(found[-1].key + "\0"), "revision": str(revision)}
        raise Failed(f"{prefix} has more keys than {PAGES_MAX * PAGE_KEYS}")

    async def _read(self, wanted: Json, path: str = "kv/range") -> Json:
        """A read may be repeated: whatever became of it, nothing was changed."""
        try:
            return await self._ask(path, wanted)
        except (Unreachable, Failed):
            if len(self.endpoints) == 1:
                raise
        return await self._ask(path, wanted)

    async def compact(self, revision: int) -> None:
        """Have etcd forget what was before this revision."""
        await self._ask("kv/compaction", {"revision": str(revision)})

    async def status(self) -> Status:
        answer = await self._ask("maintenance/status", {})
        return _understood(lambda: _status(answer))

    # --- watching ---

    async def watch(self, prefix: str, revision: int) -> AsyncGenerator[list[Changed]]:
        """Every change of keys that begin with this, since this revision; what comes at once is one list. A
        revision is never split, unless etcd does so.
        """
        next_revision, failures = revision, 0
        while True:
            try:
                async for found in self._watch(prefix, next_revision):
                    failures = 0
                    news = [each for each in found if each.revision >= next_revision]
                    if news:
                        next_revision = news[-1].revision + 1
                        yield news
            except (Unreachable, Failed):  # the endpoint is left alone for a while: try another
                pass
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    async def _watch(self, prefix: str, revision: int) -> AsyncGenerator[list[Changed]]:
        """The same over one connection. Ends if that ends."""
        wanted = {
            "create_request": {
                "key": encoded(prefix),
                "range_end": encoded(prefix_end(prefix)),
                "start_revision": str(revision),
            }
        }
        endpoint = self.endpoints.next()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS_MAX)
        try:
            async with self.session.post(
                f"{endpoint}/v3/watch", json=wanted, headers=await self._headers(endpoint), timeout=timeout
            ) as response:
                async for line in _lines(response.content):
                    yield _understood(partial(_told, line))
        except TokenEnded:
            self.token = ""
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            self.endpoints.avoid(endpoint)
            raise Unreachable(f"etcd's watch at {endpoint} ended: {_said(error)}", was_sent=True) from error

    # --- one request ---

    async def _ask(self, path: str, wanted: Json) -> Json:
        """The answer of the first endpoint that could be connected to."""
        told: list[str] = []
        for _ in range(len(self.endpoints)):
            endpoint = self.endpoints.next()
            try:
                return await self._ask_with_token(endpoint, path, wanted)
            except Unreachable as error:
                self.endpoints.avoid(endpoint)
                told.append(str(error))
                if error.was_sent:
                    raise
            except Failed:
                self.endpoints.avoid(endpoint)
                raise
        raise Unreachable("etcd cannot be reached: " + "; ".join(told), was_sent=False)

    async def _ask_with_token(self, endpoint: str, path: str, wanted: Json) -> Json:
        """A token that has ended is renewed once: etcd has not looked at the request then."""
        try:
            return await self._post(endpoint, path, wanted, await self._headers(endpoint))
        except TokenEnded:
            self.token = ""
        try:
            return await self._post(endpoint, path, wanted, await self._headers(endpoint))
        except TokenEnded as error:
            raise Refused(f"etcd does not take the token that it has just given: {error}") from error

    async def _headers(self, endpoint: str) -> dict[str, str]:
        if self.settings.user and not self.token:
            user = {"name": self.settings.user, "password": self.settings.password}
            try:
                answer = await self._post(endpoint, "auth/authenticate", user, {})
            except (Unreachable, Failed) as error:  # the request that needs the token is not sent
                raise Unreachable(f"cannot log in: {error}", was_sent=False) from error
            self.token = str(answer["token"])
        return {"Authorization": self.token} if self.token else {}

    async def _post(self, endpoint: str, path: str, wanted: Json, headers: dict[str, str]) -> Json:
        try:
            async with self.session.post(f"{endpoint}/v3/{path}", json=wanted, headers=headers) as response:
                content = await _all_of(response.content)
                status = response.status
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(f"{endpoint}: {_said(error)}", was_sent=False) from error
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            raise Unreachable(f"{endpoint}: {_said(error)}", was_sent=True) from error
        return _content(content, status)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A watch waits for ever, so something has to notice that the machine it asked is gone."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    notice_silence(made)
    return made


def _understood(read: Callable[[], T]) -> T:
    """What an answer says; `Failed` if it does not look like etcd's."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failed(f"etcd's answer is not understood: {error!r}") from error


def _status(answer: Json) -> Status:
    return Status(
        str(answer.get("version", "")),
        revision_of(answer),
        int(answer.get("dbSize", 0)),
        int(answer.get("leader", 0)) != 0,
    )


def _page(answer: Json, revision: int) -> tuple[int, list[KeyValue]]:
    """The keys of a page, and the revision of the first page."""
    return revision or revision_of(answer), key_values(answer)


def _told(line: bytes) -> list[Changed]:
    """What one message of a watch tells."""
    message = json.loads(line)
    if "error" in message:
        raise error_of(str(message["error"]))
    result = message["result"]
    if int(result.get("compact_revision", 0)):
        raise Compacted(f"etcd has forgotten what was before revision {result['compact_revision']}")
    if result.get("canceled"):
        raise error_of(str(result.get("cancel_reason", "the watch was cancelled")))
    return changes(result)


def _content(text: bytes, status: int) -> Json:
    try:
        content: Any = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Failed(f"what answers is not etcd's JSON gateway: HTTP status {status}")
    if status != HTTP_OK:
        raise error_of(str(content.get("error", content.get("message", f"HTTP status {status}"))))
    return content


async def _all_of(stream: aiohttp.StreamReader) -> bytes:
    parts, size = [], 0
    async for part in stream.iter_any():
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise Failed(f"an answer has more than {ANSWER_BYTES_MAX} bytes")
    return b"".join(parts)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, however long they are: a message of a watch is one line."""
    parts: list[bytes] = []
    size = 0
    async for part in stream.iter_any():
        *ended, rest = part.split(b"\n")
        for line in ended:
            whole = b"".join([*parts, line])
            parts, size = [], 0
            if whole:
                yield whole
        parts.append(rest)
        size += len(rest)
        if size > ANSWER_BYTES_MAX:
            raise Failed(f"a message of a watch has more than {ANSWER_BYTES_MAX} bytes")


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if type(error) is aiohttp.ClientConnectorError and error.os_error.errno is not None:
        return os.strerror(error.os_error.errno)
    return str(error) or type(error).__name__
