"""The keys that signatures of tokens are checked by: a JSON Web Key Set (RFC 7517), from a file or a URL.

Keys are fetched in the background and kept. They are fetched again every hour, on SIGHUP, and when a token
names a key that is not known, but then not more often than every `REFETCH_SECONDS`. Whatever goes wrong then
is logged, and the keys that are known stay in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import aiohttp
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from warren.server.config_error import ConfigError
from warren.server.oauth.settings import OAuth2Settings

FETCH_SECONDS_MAX = 5.0
REFETCH_SECONDS = 15.0
REFRESH_SECONDS = 3600.0
JWKS_BYTES_MAX = 1024 * 1024
DISCOVERY = "/.well-known/openid-configuration"
SYMMETRIC = "oct"
HTTPS = "https://"
NONE_GIVEN = ""

Keys: TypeAlias = dict[str, PyJWK]
"""By key id; `NONE_GIVEN` for a key without."""


class KeysError(Exception):
    """There is no set of keys where one was expected."""


def read_keys(text: bytes, *, symmetric: bool) -> Keys:
    """The keys of a set that can be used; `KeysError` if there are none. Keys from a URL must not be
    symmetric: those are secrets.
    """
    try:
        entries = json.loads(text)["keys"]
        if not isinstance(entries, list):
            raise KeysError("'keys' is not a list")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KeysError('not a set of keys, {"keys": […]}') from None
    found: Keys = {}
    for entry in entries:
        key = _read_key(entry)
        if key is not None and (symmetric or key.key_type != SYMMETRIC):
            found[str(entry.get("kid", NONE_GIVEN))] = key
    if not found:
        raise KeysError("no usable keys")
    return found


def _read_key(entry: object) -> PyJWK | None:
    """None for a key of a kind that we do not know, or for encryption: others may use the same set."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    try:
        return PyJWK.from_dict(entry)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None


class KeyCache:
    """Finds keys by their ids."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Keys]],
        default: str,
        log: structlog.stdlib.BoundLogger,
        now: Callable[[], float],
    ) -> None:
        self.load = load  # gets the whole set
        self.default = default  # the id of the key for tokens that name none
        self.log = log  # where it says if there is no set to be had
        self.now = now  # a clock that never goes back
        self.keys: Keys = {}  # the set as it was last
        self.loaded_at: float | None = None  # when keys were asked for last
        self.loading: asyncio.Task[None] | None = None  # gets the set now
        self.refreshing: asyncio.Task[None] | None = None  # gets it every hour

    async def start(self, keys: Keys | None = None) -> None:
        """Without keys to begin with, they are fetched in the background."""
        if keys is None:
            self._begin_loading()
        else:
            self.keys = keys
        self.refreshing = asyncio.create_task(self._refresh())

    async def stop(self) -> None:
        for task in (self.refreshing, self.loading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def load_again(self) -> None:
        """Get the set now, in the background."""
        if self.loading is None:
            self._begin_loading()

    async def find(self, key_id: str | None) -> PyJWK | None:
        """The key with this id. If it is not known, perhaps the set has changed: then look again."""
        found = self._known(key_id)
        if found is None:
            if self.loading is None and not self._asked_lately():
                self._begin_loading()
            if self.loading is not None:
                await asyncio.shield(self.loading)
                found = self._known(key_id)
        return found

    def _known(self, key_id: str | None) -> PyJWK | None:
        if key_id is None and not self.default:
            return next(iter(self.keys.values())) if len(self.keys) == 1 else self.keys.get(NONE_GIVEN)
        return self.keys.get(self.default if key_id is None else key_id)

    def _asked_lately(self) -> bool:
        return self.loaded_at is not None and self.now() - self.loaded_at < REFETCH_SECONDS

    def _begin_loading(self) -> None:
        self.loaded_at = self.now()
        self.loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS_MAX):
                self.keys = await self.load()
        except (KeysError, OSError, aiohttp.ClientError, TimeoutError) as error:
            self.log.warning("cannot get the keys for tokens", error=str(error) or type(error).__name__)
        finally:
            self.loading = None

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            self.load_again()


def loader_of(settings: OAuth2Settings) -> Callable[[], Awaitable[Keys]]:
    """The function that gets the keys, from where the settings say."""
    if settings.jwks_file:
        return lambda: _from_file(Path(settings.jwks_file))
    return lambda: _from_url(settings)


async def _from_file(path: Path) -> Keys:
    text = await asyncio.get_running_loop().run_in_executor(None, path.read_bytes)
    return read_keys(text, symmetric=True)


async def _from_url(settings: OAuth2Settings) -> Keys:
    async with aiohttp.ClientSession() as session:
        url = settings.jwks_url or await _discover(session, settings.issuer)
        return read_keys(await _get(session, url), symmetric=False)


async def _discover(session: aiohttp.ClientSession, issuer: str) -> str:
    """Where the issuer has its keys. They decide who is let in, so they come as safely as the answer did."""
    text = await _get(session, issuer.rstrip("/") + DISCOVERY)
    try:
        url = str(json.loads(text)["jwks_uri"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KeysError("the issuer does not say where its keys are ('jwks_uri')") from None
    if issuer.startswith(HTTPS) and not url.startswith(HTTPS):
        raise KeysError(f"the issuer has its keys at {url}, which is not {HTTPS}…")
    return url


async def _get(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise KeysError(f"{url} answers {answer.status}")
        text = await answer.content.read(JWKS_BYTES_MAX + 1)
        while len(text) <= JWKS_BYTES_MAX and (more := await answer.content.read(JWKS_BYTES_MAX)):
            text += more
        if len(text) > JWKS_BYTES_MAX:
            raise KeysError(f"{url} answers more than {JWKS_BYTES_MAX} bytes")
        return text


async def keys_in_file(path: str) -> Keys:
    """The keys of a file, or a `ConfigError` that says why there are none."""
    try:
        return await _from_file(Path(path))
    except (OSError, KeysError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"oauth2: jwks_file = {path}: {reason}") from error
