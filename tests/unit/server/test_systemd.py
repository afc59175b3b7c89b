"""What systemd is told: ready, alive, stopping."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.server.log import get_logger
from warren.server.systemd import Systemd

WAIT_SECONDS_MAX = 30


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(WAIT_SECONDS_MAX)
        yield receiver


def systemd(address: str, **more: str) -> Systemd:
    return Systemd({"NOTIFY_SOCKET": address} | more, get_logger())


def test_systemd_hears_when_the_broker_is_ready_and_when_it_stops(notified: socket.socket) -> None:
    told = systemd(notified.getsockname())
    told.ready("AMQP on 127.0.0.1:5672")
    assert notified.recv(1000).decode().split("\n") == [
        "READY=1",
        "STATUS=AMQP on 127.0.0.1:5672",
        f"MAINPID={os.getpid()}",
    ]
    told.stopping()
    assert notified.recv(1000) == b"STOPPING=1"


def test_a_name_in_the_abstract_namespace_is_found() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0warren-test-{os.getpid()}")
        receiver.settimeout(WAIT_SECONDS_MAX)
        systemd(f"@warren-test-{os.getpid()}").stopping()
        assert receiver.recv(1000) == b"STOPPING=1"


async def test_systemd_hears_again_and_again_that_the_loop_is_alive(notified: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    notified.setblocking(False)
    told = systemd(notified.getsockname(), WATCHDOG_USEC="30000", WATCHDOG_PID=str(os.getpid()))
    with told.watched(loop):
        for _ in range(3):
            heard = await asyncio.wait_for(loop.sock_recv(notified, 1000), WAIT_SECONDS_MAX)
            assert heard == b"WATCHDOG=1"


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}]
)
def test_nobody_is_pinged_who_does_not_watch_this_process(environment: dict[str, str]) -> None:
    assert Systemd(environment, get_logger()).watchdog_seconds == 0


def test_a_socket_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    systemd(str(tmp_path / "absent")).stopping()
    (line,) = caplog.records
    assert line.message == "systemd cannot be told"
