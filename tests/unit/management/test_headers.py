"""Headers of every answer, and CORS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.support.http_api import Api, make_broker
from warren.management.headers import FOR_PAGES, add_security_headers

PAGE = "https://page.example"
ASKS = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}


@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("/api/overview", "guest"),
        ("/api/overview", ""),
        ("/api/queues", "guest"),
        ("/metrics", ""),
        ("/nothing", ""),
    ],
)
async def test_every_answer_has_security_headers(api: Api, path: str, user: str) -> None:
    headers = (await api.get(path, user=user)).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "Strict-Transport-Security" not in headers


async def test_answers_of_the_api_are_not_cached(api: Api) -> None:
    assert (await api.get("/api/overview")).headers["Cache-Control"] == "no-store"


async def test_pages_may_load_what_is_theirs() -> None:
    response = web.Response(text="<html>", content_type="text/html")
    await add_security_headers(make_mocked_request("GET", "/"), response)
    assert response.headers["Content-Security-Policy"] == FOR_PAGES
    assert "Cache-Control" not in response.headers


async def test_transport_security_is_asked_for_over_tls_only() -> None:
    for scheme, expected in (("http", False), ("https", True)):
        response = web.Response()
        request = make_mocked_request("GET", "/api/overview").clone(scheme=scheme)
        await add_security_headers(request, response)
        assert ("Strict-Transport-Security" in response.headers) is expected


async def test_without_the_setting_no_page_of_others_may_use_the_api(api: Api) -> None:
    answer = await api.get("/api/overview", headers={"Origin": PAGE})
    assert not [name for name in answer.headers if name.startswith("Access-Control")]
    preflight = await api.request("OPTIONS", "/api/overview", user="", headers={"Origin": PAGE} | ASKS)
    assert preflight.status == 401


@pytest.fixture
async def open_api(tmp_path: Path) -> AsyncIterator[Api]:
    settings = {"http_cors_origins": (PAGE,), "http_cors_max_age": 7}
    async with make_broker(tmp_path / "data", **settings) as broker, aiohttp.ClientSession() as session:
        yield Api(broker, session)


async def test_page_of_a_named_origin_may_use_the_api(open_api: Api) -> None:
    answer = await open_api.get("/api/overview", headers={"Origin": PAGE})
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert answer.headers["Access-Control-Allow-Credentials"] == "true"
    assert answer.headers["Vary"] == "Origin"


async def test_browser_may_ask_before_it_logs_in(open_api: Api) -> None:
    answer = await open_api.request("OPTIONS", "/api/vhosts/x", user="", headers={"Origin": PAGE} | ASKS)
    assert answer.status == 204
    assert "PUT" in answer.headers["Access-Control-Allow-Methods"]
    assert answer.headers["Access-Control-Allow-Headers"] == "authorization"
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert answer.headers["Access-Control-Max-Age"] == "7"


async def test_page_of_another_origin_may_not(open_api: Api) -> None:
    for origin in ("https://other.example", "null", PAGE + ".evil.example"):
        answer = await open_api.get("/api/overview", headers={"Origin": origin})
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert answer.headers["Vary"] == "Origin"
        asked = await open_api.request("OPTIONS", "/api/overview", user="", headers={"Origin": origin} | ASKS)
        assert asked.status == 401


async def test_any_origin_may_use_the_api_but_not_what_the_browser_knows(tmp_path: Path) -> None:
    async with (
        make_broker(tmp_path / "data", http_cors_origins=("*",)) as broker,
        aiohttp.ClientSession() as session,
    ):
        answer = await Api(broker, session).get("/api/overview", headers={"Origin": PAGE})
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "Access-Control-Allow-Credentials" not in answer.headers
