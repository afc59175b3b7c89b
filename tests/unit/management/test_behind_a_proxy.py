"""The HTTP API behind a proxy that speaks the PROXY protocol: what counts is the address of its client."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import warren
from tests.support.certificates import Certificates
from tests.support.http_api import USERS, make_broker, user
from tests.support.process import Address
from tests.support.proxy import FROM_PROXY, proxy_to
from tests.unit.management.test_websocket import Client
from tests.unit.server.test_proxy_header import HEADERS
from warren import events
from warren.server.listeners import HTTP, HTTPS, PROMETHEUS
from warren.session.connection import connections_of

CLIENT = "192.0.2.7"
ADMIN = aiohttp.encode_basic_auth("admin", "admin")
GUEST = aiohttp.encode_basic_auth("guest", "guest")


@asynccontextmanager
async def behind_a_proxy(
    directory: Path, protocol: str = HTTP, header: bytes = FROM_PROXY, **settings: Any
) -> AsyncIterator[tuple[warren.Broker, str]]:
    """A broker, and where a proxy listens that passes requests on to this protocol's port."""
    given = {"http_proxy_protocol": True, "users": (*USERS, user("admin", "administrator"))} | settings
    async with make_broker(directory / "data", **given) as broker:
        port = broker.listeners.of(protocol)[0]
        async with proxy_to(Address(port.host, port.port), header) as proxy:
            yield broker, f"{proxy.address.host}:{proxy.address.port}"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def status_of(session: aiohttp.ClientSession, url: str, login: str, **how: Any) -> int:
    async with session.get(url, headers={"Authorization": login}, **how) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize("name", HEADERS)
async def test_user_of_this_machine_only_counts_by_the_address_of_the_client(
    tmp_path: Path, session: aiohttp.ClientSession, name: str
) -> None:
    header, (source, _) = HEADERS[name]
    async with behind_a_proxy(tmp_path, header=header) as (_broker, address):
        found = await status_of(session, f"http://{address}/api/whoami", GUEST)
    assert found == (200 if source is None else 401)


async def test_each_request_of_a_connection_has_the_clients_address(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    seen: list[events.AdministrativeAction] = []
    async with behind_a_proxy(tmp_path) as (broker, address):
        broker.subscribe(events.AdministrativeAction, seen.append)
        for vhost in ("one", "two"):
            url = f"http://{address}/api/vhosts/{vhost}"
            async with session.put(url, headers={"Authorization": ADMIN}) as answer:
                assert answer.status == 201
    assert seen == [
        events.AdministrativeAction("admin", CLIENT, f"PUT /api/vhosts/{vhost}", 201)
        for vhost in ("one", "two")
    ]


async def test_failed_login_counts_for_the_client_and_the_log_names_it(
    tmp_path: Path, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "warren")
    async with behind_a_proxy(tmp_path) as (broker, address):
        wrong = aiohttp.encode_basic_auth("admin", "wrong")
        assert await status_of(session, f"http://{address}/api/whoami", wrong) == 401
        assert list(broker.node.logins.throttle.addresses) == [CLIENT]
    (record,) = [each for each in caplog.records if each.getMessage() == "authentication failed"]
    assert vars(record)["connection"] == f"HTTP from {CLIENT}"


async def test_header_comes_before_tls(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    certificates = Certificates(tmp_path)
    settings: dict[str, Any] = {"tls_cert": str(certificates.server), "tls_port": -1, "http_tls_port": 0}
    async with behind_a_proxy(tmp_path, HTTPS, **settings) as (_broker, address):
        url, context = f"https://{address}/api/whoami", certificates.context()
        assert await status_of(session, url, ADMIN, ssl=context) == 200
        assert await status_of(session, url, GUEST, ssl=context) == 401


async def test_one_listener_may_be_behind_a_proxy_and_another_not(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    listeners = [{"address": "127.0.0.1:0", "proxy_protocol": True}, "127.0.0.1:0"]
    settings: dict[str, Any] = {"http_proxy_protocol": False, "http_listeners": listeners}
    async with behind_a_proxy(tmp_path, **settings) as (broker, address):
        assert await status_of(session, f"http://{address}/api/whoami", GUEST) == 401
        direct = broker.listeners.of(HTTP)[1].address
        assert await status_of(session, f"http://{direct}/api/whoami", GUEST) == 200


async def test_amqps_setting_is_not_for_http(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    async with make_broker(tmp_path / "data", proxy_protocol=True) as broker:
        url = f"http://{broker.services['http'].address}/api/whoami"
        assert await status_of(session, url, GUEST) == 200


async def test_request_without_a_header_is_cut_off(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    async with behind_a_proxy(tmp_path) as (broker, _):
        url = f"http://{broker.services['http'].address}/api/whoami"
        with pytest.raises(aiohttp.ClientConnectionError):
            await status_of(session, url, GUEST)


async def test_port_for_metrics_alone_is_reached_directly(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    async with behind_a_proxy(tmp_path, prometheus_port=0) as (broker, _):
        url = f"http://{broker.listeners.of(PROMETHEUS)[0].address}/metrics"
        assert await status_of(session, url, "") == 200


async def test_connection_over_a_websocket_has_the_clients_address(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    async with (
        behind_a_proxy(tmp_path, loopback_users=()) as (broker, address),
        session.ws_connect(f"http://{address}/ws/amqp") as socket,
    ):
        await Client(socket).log_in()
        (connection,) = connections_of(broker.node)
        assert connection.name == "192.0.2.7:40000 -> 192.0.2.1:5672"
