"""Reading files for clients of the API."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http_api import Api
from warren.management.context import Context
from warren.management.file_reader import READ_BYTES, open_file, read_cached

DATA = bytes(range(256)) * 1_000


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(DATA)
    opened = os.open(tmp_path / "file", os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_what_is_not_in_memory_is_left_to_a_thread(
    file: int, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, "not at once")

    monkeypatch.setattr(os, "preadv", refuse)
    assert read_cached(file, 10, 0) is None


def test_disk_that_fails_is_no_reason_to_try_again(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "preadv", refuse)
    with pytest.raises(OSError, match="broken"):
        read_cached(file, 10, 0)


@pytest.mark.parametrize("cached", [True, False])
async def test_bytes_are_the_same_from_memory_and_from_disk(
    api: Api, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    if not cached:

        def refuse(*_: object) -> int:
            raise OSError(errno.EAGAIN, "not at once")

        monkeypatch.setattr(os, "preadv", refuse)
    await api.publish(api.declare("q"), [b"x" * (3 * READ_BYTES)])
    whole = (api.broker.config.data_dir / "queues/1/00000000000000000001.seg").read_bytes()
    assert (await api.get("/api/segments/%2F/q/1")).body == whole


def is_open(file: Path) -> bool:
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is needed
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if Path(f"/proc/self/fd/{number}").readlink() == file:
                return True
    return False


async def test_file_for_a_client_that_hangs_up_while_it_is_opened_is_closed(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(DATA)
    opened, going_on, real_open = threading.Event(), threading.Event(), os.open

    def slow_open(path: str, flags: int) -> int:
        number = real_open(path, flags)
        opened.set()
        going_on.wait()
        return number

    context = Context(api.broker)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", slow_open)
        task = asyncio.create_task(open_file(context, str(file)))
        await asyncio.to_thread(opened.wait)
    assert is_open(file)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    going_on.set()
    async with asyncio.timeout(10):
        while is_open(file):  # noqa: ASYNC110 - nobody tells when a file is closed
            await asyncio.sleep(0)
    context.close()
