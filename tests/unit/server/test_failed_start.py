"""A broker that cannot start leaves nothing behind in the program that embeds it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.support.http_api import make_broker
from warren import commands
from warren.amqp.errors import AmqpError
from warren.broker.access import Permissions
from warren.server.config import UserConfig
from warren.server.config_error import ConfigError
from warren.storage.directory import DirectoryError
from warren.storage.store import DiskStore

WAIT_SECONDS_MAX = 10
POLICY = commands.PutPolicy(vhost="nowhere", name="p", pattern="", definition={"max-length": 5})
SENSELESS = commands.PutPolicy(vhost="/", name="p", pattern="", definition={"max-length": "many"})
LIMITS = commands.SetVhostLimits(vhost="nowhere", max_queues=1)
USER = UserConfig(name="u", password="u", permissions={"/": Permissions()})


def left_behind() -> tuple[set[str], set[str], int]:
    """Threads, open files and sockets, and tasks of this program."""
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("warren")}
    files = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if is_open(name)}  # noqa: PTH115, PTH208
    return threads, {file for file in files if "pytest" in file or "socket" in file}, len(asyncio.all_tasks())


async def until_only(before: tuple[set[str], set[str], int]) -> None:
    """Wait until nothing is left behind: a thread that was told to end may take a moment."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while left_behind() != before:  # noqa: ASYNC110 - threads tell nobody when they have ended
            await asyncio.sleep(0)


def is_open(name: str) -> bool:
    return Path(f"/proc/self/fd/{name}").is_symlink()


def broken_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ConfigError("an exchange type that cannot be loaded")

    monkeypatch.setattr("warren.server.app.exchange_types", fail)


def broken_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_store: DiskStore) -> None:
        raise OSError("unreadable")

    monkeypatch.setattr(DiskStore, "_recover_queues", lambda store, *_found: fail(store))


def broken_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_password: str, _salt: bytes) -> None:
        raise MemoryError("no room to hash in")

    monkeypatch.setattr("warren.server.app.hash_password", fail)


def sound(_monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is broken: only the configuration is wrong."""


@pytest.mark.parametrize(
    ("settings", "fault", "error"),
    [
        ({"policies": (POLICY,)}, sound, ConfigError),
        ({"policies": (SENSELESS,)}, sound, AmqpError),
        ({"vhost_limits": (LIMITS,)}, sound, ConfigError),
        ({"events_stream": True, "vhosts": ("other",), "users": ()}, sound, ConfigError),
        ({"bind": "192.0.2.1"}, sound, OSError),
        ({}, broken_node, ConfigError),
        ({}, broken_recovery, OSError),
        ({"users": (USER,)}, broken_hashing, MemoryError),
    ],
)
async def test_failed_start_leaves_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    fault: Callable[[pytest.MonkeyPatch], None],
    error: type[Exception],
) -> None:
    before = left_behind()
    with monkeypatch.context() as patch:
        fault(patch)
        broker = make_broker(tmp_path / "data", **settings)
        with pytest.raises(error):
            await broker.start()
        await broker.stop()
    await until_only(before)
    async with make_broker(tmp_path / "data") as again:
        again.execute(commands.DeclareQueue(vhost="/", name="q"))
    await until_only(before)


async def test_broker_can_be_started_again_once_its_configuration_is_right(tmp_path: Path) -> None:
    broker = warren.Broker(port=0, data_dir=tmp_path, policies=(POLICY,))
    with pytest.raises(ConfigError):
        await broker.start()
    object.__setattr__(broker.config, "policies", ())
    async with broker:
        assert "/" in broker.node.vhosts


async def test_start_that_is_cancelled_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = left_behind()
    recovering, go_on = threading.Event(), threading.Event()
    recover = DiskStore.recover

    def wait(store: DiskStore) -> list[commands.Command]:
        recovering.set()
        go_on.wait()
        return recover(store)

    monkeypatch.setattr(DiskStore, "recover", wait)
    start = asyncio.create_task(make_broker(tmp_path / "data").start())
    await asyncio.get_running_loop().run_in_executor(None, recovering.wait)
    start.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert left_behind() == before
    async with make_broker(tmp_path / "data"):
        pass


async def test_recovery_that_fails_does_not_hide_how_the_run_before_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_broker(tmp_path):
        pass
    (tmp_path / "running").write_text("another boot")
    with monkeypatch.context() as patch:
        broken_recovery(patch)
        with pytest.raises(OSError, match="unreadable"):
            await make_broker(tmp_path).start()
    assert (tmp_path / "running").read_text() == "another boot"


async def test_second_broker_on_a_directory_leaves_the_first_alone(tmp_path: Path) -> None:
    async with make_broker(tmp_path) as first:
        before = left_behind()
        with pytest.raises(DirectoryError, match="in use"):
            await make_broker(tmp_path).start()
        assert left_behind() == before
        first.execute(commands.DeclareQueue(vhost="/", name="q"))
