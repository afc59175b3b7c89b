"""`warren events` on a broker that writes its events to a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.support.certificates import Certificates
from tests.support.http_api import make_broker
from warren import commands
from warren.cli.main import main


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[warren.Broker]:
    async with make_broker(tmp_path / "data", events_stream=True, events_sample=0) as running:
        yield running


def make_tls_broker(data_dir: Path, certificates: Certificates, **more: str) -> warren.Broker:
    """It speaks AMQP with TLS only, and HTTP with TLS and without."""
    config: dict[str, Any] = {"http_port": 0, "http_tls_port": 0, "port": -1, "tls_port": 0, **more}
    return warren.Broker(
        data_dir=data_dir, tls_cert=str(certificates.server), events_stream=True, events_sample=0, **config
    )


async def run(broker: warren.Broker, *words: str) -> int:
    url = f"http://guest:guest@{broker.services['http'].address}"
    return await asyncio.to_thread(main, ["events", "--url", url, *words])


async def test_events_come_as_lines(broker: warren.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        broker.execute(commands.DeclareQueue(vhost="/", name=name))
    assert await run(broker, "--from", "first", "--event", "queue.", "--count", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:] for line in lines] == [
        ["queue.created", "vhost=/", "queue=a"],
        ["queue.created", "vhost=/", "queue=b"],
    ]


async def test_events_come_as_json(broker: warren.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.execute(commands.DeclareQueue(vhost="/", name="a"))
    assert await run(broker, "--from", "first", "--event", "queue.created", "--count", "1", "--json") == 0
    event = json.loads(capsys.readouterr().out)
    assert event.pop("time").endswith("Z")
    assert event == {"event": "queue.created", "vhost": "/", "queue": "a"}


async def test_next_events_are_waited_for(broker: warren.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = asyncio.create_task(run(broker, "--event", "queue.", "--count", "1"))
    stream = broker.node.vhosts["/"].queues["warren.events"]
    while not stream.consumers:  # noqa: ASYNC110 - nothing tells that a consumer is there
        await asyncio.sleep(0.01)
    broker.execute(commands.DeclareQueue(vhost="/", name="late"))
    assert await waiting == 0
    assert "queue=late" in capsys.readouterr().out


async def test_broker_without_the_stream_is_told_how_to_have_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with make_broker(tmp_path / "other") as broker:
        assert await run(broker) == 1
    assert "events_stream = true" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_broker_that_speaks_amqp_with_tls_only_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    certificates = Certificates(tmp_path)
    async with make_tls_broker(tmp_path / "data", certificates) as broker:
        (port,) = broker.listeners.of(scheme)
        broker.execute(commands.DeclareQueue(vhost="/", name="a"))
        url, ca = f"{scheme}://guest:guest@{port.address}", str(certificates.ca)
        words = ["events", "--url", url, "--cacert", ca, "--from", "first", "--count", "1"]
        assert await asyncio.to_thread(main, [*words, "--event", "queue.created"]) == 0
    assert "queue=a" in capsys.readouterr().out


async def test_broker_that_asks_for_a_certificate_gets_it_over_both_protocols(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = Certificates(tmp_path)
    settings = {"tls_verify": "require", "tls_ca": str(certificates.ca)}
    async with make_tls_broker(tmp_path / "data", certificates, **settings) as broker:
        (port,) = broker.listeners.of("https")
        broker.execute(commands.DeclareQueue(vhost="/", name="a"))
        files = ["--cacert", str(certificates.ca), "--cert", str(certificates.client("ops"))]
        words = ["events", "--url", f"https://guest:guest@{port.address}", *files, "--from", "first"]
        assert await asyncio.to_thread(main, [*words, "--event", "queue.created", "--count", "1"]) == 0
    assert "queue=a" in capsys.readouterr().out


async def test_broker_that_cannot_be_trusted_is_refused_with_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with make_tls_broker(tmp_path / "data", Certificates(tmp_path)) as broker:
        assert await run(broker) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"warren events: cannot trust {broker.address}: ")
    assert told.endswith("; amqps://…?cacertfile=FILE names those to trust\n")


async def test_amqp_uri_that_makes_no_sense_is_exit_2(broker: warren.Broker) -> None:
    assert await run(broker, "--amqp", "http://broker") == 2
