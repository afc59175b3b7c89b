"""Keys from a URL: fetched in the background, kept, and fetched again for a key that is not known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.support.tokens import Issuer
from warren.server.log import get_logger
from warren.server.oauth import keys as module
from warren.server.oauth.keys import REFETCH_SECONDS, KeyCache, Keys, KeysError, loader_of, read_keys
from warren.server.oauth.settings import OAuth2Settings


class Server:
    """Serves a set of keys, and counts how often it was asked."""

    def __init__(self) -> None:
        self.issuers = [Issuer("one")]
        self.asked = 0
        self.fails = False
        self.hangs = False
        self.url = ""

    async def jwks(self, _request: web.Request) -> web.Response:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(600)
        if self.fails:
            raise web.HTTPInternalServerError
        return web.json_response({"keys": [issuer.jwk() for issuer in self.issuers]})

    async def discovery(self, _request: web.Request) -> web.Response:
        return web.json_response({"jwks_uri": f"{self.url}/jwks"})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    app = web.Application()
    app.add_routes(
        [web.get("/jwks", found.jwks), web.get("/.well-known/openid-configuration", found.discovery)]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def cache(server: Server, clock: Clock) -> AsyncIterator[KeyCache]:
    settings = OAuth2Settings(resource_server_id="warren", jwks_url=f"{server.url}/jwks")
    made = KeyCache(loader_of(settings), "", get_logger(), clock)
    await made.start()
    yield made
    await made.stop()


async def test_keys_are_fetched_once_and_kept(server: Server, cache: KeyCache) -> None:
    for _ in range(3):
        assert await cache.find("one") is not None
    assert server.asked == 1


async def test_unknown_key_is_looked_for_again_but_not_too_often(
    server: Server, cache: KeyCache, clock: Clock
) -> None:
    assert await cache.find("one") is not None
    server.issuers = [Issuer("two")]
    assert await cache.find("two") is None
    assert server.asked == 1
    clock.time = REFETCH_SECONDS
    found = await asyncio.gather(*(cache.find("two") for _ in range(20)))
    assert all(found)
    assert server.asked == 2
    assert await cache.find("one") is None, "a key that was withdrawn does not count any more"


async def test_server_that_fails_takes_no_keys_away(server: Server, cache: KeyCache, clock: Clock) -> None:
    await cache.find("one")
    server.fails = True
    clock.time = REFETCH_SECONDS
    assert await cache.find("two") is None
    assert await cache.find("one") is not None
    assert server.asked == 2


async def test_set_without_a_usable_key_takes_no_keys_away(
    server: Server, cache: KeyCache, clock: Clock
) -> None:
    await cache.find("one")
    server.issuers = []
    clock.time = REFETCH_SECONDS
    assert await cache.find("two") is None
    assert await cache.find("one") is not None


async def test_key_that_was_withdrawn_counts_no_more_once_the_set_is_got_again(
    server: Server, cache: KeyCache
) -> None:
    await cache.find("one")
    server.issuers = [Issuer("two")]
    cache.load_again()
    assert cache.loading is not None
    await cache.loading
    assert await cache.find("one") is None
    assert await cache.find("two") is not None


async def test_server_that_does_not_answer_harms_nobody(
    server: Server, cache: KeyCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.find("one")
    monkeypatch.setattr(module, "FETCH_SECONDS_MAX", 0.05)
    server.hangs = True
    clock.time = REFETCH_SECONDS
    waiting = asyncio.create_task(cache.find("two"))
    await asyncio.sleep(0)
    assert await cache.find("one") is not None
    assert await waiting is None


async def test_keys_that_cannot_be_had_at_the_start_are_had_later(server: Server, clock: Clock) -> None:
    server.fails = True
    settings = OAuth2Settings(resource_server_id="warren", jwks_url=f"{server.url}/jwks")
    cache = KeyCache(loader_of(settings), "", get_logger(), clock)
    await cache.start()
    assert await cache.find("one") is None
    server.fails = False
    clock.time = REFETCH_SECONDS
    assert await cache.find("one") is not None
    await cache.stop()


async def test_issuer_says_where_its_keys_are(server: Server) -> None:
    assert set(await loader_of(OAuth2Settings(issuer=f"{server.url}/"))()) == {"one"}


async def test_keys_of_an_issuer_with_tls_do_not_come_without(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(_session: aiohttp.ClientSession, url: str) -> bytes:
        assert url == "https://login.example/.well-known/openid-configuration"
        return b'{"jwks_uri": "http://login.example/keys"}'

    monkeypatch.setattr(module, "_get", get)
    with pytest.raises(KeysError, match=r"http://login\.example/keys, which is not https"):
        await loader_of(OAuth2Settings(issuer="https://login.example"))()


async def test_address_without_keys_is_an_error(server: Server) -> None:
    for path in ("/nothing", "/.well-known/openid-configuration"):
        with pytest.raises(KeysError):
            await loader_of(OAuth2Settings(jwks_url=server.url + path))()


async def test_nobody_there_is_an_error(unused_tcp_port: int) -> None:
    with pytest.raises(aiohttp.ClientError):
        await loader_of(OAuth2Settings(jwks_url=f"http://127.0.0.1:{unused_tcp_port}/"))()


def read(*entries: object, symmetric: bool = False) -> Keys:
    return read_keys(json.dumps({"keys": entries}).encode(), symmetric=symmetric)


def test_keys_that_cannot_be_used_are_left_out() -> None:
    good = Issuer("good").jwk()
    shared = {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}
    assert set(read(good, good | {"kid": "enc", "use": "enc"}, {"kty": "new"}, 7, shared)) == {"good"}
    assert set(read(shared, symmetric=True)) == {"shared"}


@pytest.mark.parametrize("text", [b"", b"7", b'{"keys": 7}', b'{"keys": []}', b"[" * 100_000, b"\xff"])
def test_what_is_no_set_of_keys_is_an_error(text: bytes) -> None:
    with pytest.raises(KeysError):
        read_keys(text, symmetric=False)
