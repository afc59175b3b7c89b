"""Services that run in a broker beside AMQP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import uvloop

import warren
from tests.support.http_api import Api, make_broker
from warren.server import services
from warren.server.config_error import ConfigError
from warren.server.services import load_service


async def test_embedded_broker_has_no_http_api_unless_asked(tmp_path: Path) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path) as broker:
        assert "http" not in broker.services


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_http_api_runs_on_either_loop_and_ends_with_the_broker(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def scenario() -> None:
        async with aiohttp.ClientSession() as session:
            async with make_broker(tmp_path) as broker:
                api = Api(broker, session)
                await api.publish(api.declare("q"), [b"x" * 1_000_000])
                assert len((await api.get("/api/segments/%2F/q/1")).body) > 1_000_000
                host, _, port = broker.services["http"].address.rpartition(":")
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, int(port))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


async def test_http_port_in_use_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"http_port = {port} .*in use"):
            await make_broker(tmp_path, http_port=port).start()
    async with make_broker(tmp_path):
        pass  # the data directory is free again


async def test_amqp_port_in_use_ends_the_http_api_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = make_broker(tmp_path)
        object.__setattr__(broker.config, "port", listener.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await broker.start()
    async with make_broker(tmp_path):
        pass


def test_service_that_is_not_installed_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "GROUP", "warren.nothing")
    with pytest.raises(ConfigError, match="there is no service 'http'"):
        load_service("http")
