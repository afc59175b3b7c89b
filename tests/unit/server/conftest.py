"""Brokers on either event loop, with TLS and without."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvloop

import warren
from tests.support.certificates import Certificates
from warren.server.config import HTTP_OFF, Config
from warren.server.listeners import AMQPS

WAIT_SECONDS_MAX = 20
Scenario: TypeAlias = Callable[[warren.Broker], Awaitable[None]]
Run: TypeAlias = Callable[..., None]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a scenario with a broker that has these settings."""

    given: dict[str, Any] = {"port": 0, "http_port": HTTP_OFF, "data_dir": tmp_path / "data"}

    def run_scenario(scenario: Scenario, **settings: Any) -> None:
        async def with_broker() -> None:
            async with (
                asyncio.timeout(WAIT_SECONDS_MAX),
                warren.Broker(Config(**given | settings)) as broker,
            ):
                await scenario(broker)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(with_broker())

    return run_scenario


def with_tls(certificates: Certificates, **more: Any) -> dict[str, Any]:
    return {"tls_cert": str(certificates.server), "tls_port": 0, **more}


def tls_port(broker: warren.Broker) -> int:
    return broker.listeners.of(AMQPS)[0].port


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells when a socket was accepted
        await asyncio.sleep(0.005)
