"""One archive at a time in a directory: a lock on `<to>/_lock`, which the system lets go of with its process.

Other file systems than this machine's have no such lock. There Spark itself refuses the second of two that
share a checkpoint, when both write down the same batch; and leftovers, which a second one might take for
its own, are not removed.

Who merges files takes it for a moment, to remove old ones while no archive runs: so archives wait a little.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.lists import local_path

LOCK = "_lock"
HOLDER_BYTES_MAX = 100
TRIES, TRY_SECONDS = 20, 0.1


@contextmanager
def only_one(to: str, *, elsewhere: bool) -> Iterator[str]:
    """While it is entered nobody else archives to this directory. Gives a sentence to tell if that cannot be
    had. `elsewhere`: Spark runs on another machine, perhaps, so that a directory which is not here is not
    made here.
    """
    root = local_path(to)
    if root is None or (elsewhere and not root.is_dir()):
        yield f"--to {to} is not on this machine, and is not locked: let no other archive write there"
        return
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _take(handle, to)
    finally:
        os.close(handle)


@contextmanager
def if_nobody_archives(root: Path) -> Iterator[bool]:
    """Whether that is so, and stays so while this is entered."""
    handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or a network file system without locks
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _take(handle: int, to: str) -> str:
    try:
        _take_in_time(handle)
    except BlockingIOError:
        holder = os.pread(handle, HOLDER_BYTES_MAX, 0).decode(errors="replace").strip()
        raise PipelineError(
            f"--to {to} is being written to by another archive ({holder or 'it has just begun'}): "
            "wait for its end, or choose another directory"
        ) from None
    except OSError as error:  # a network file system without locks
        return f"--to {to} cannot be locked ({error.strerror}): let no other archive write there"
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
    return ""


def _take_in_time(handle: int) -> None:
    for _ in range(TRIES):
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(TRY_SECONDS)
    return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
