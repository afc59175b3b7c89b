"""Allows one archive job at a time in a directory, by a lock on `<to>/_lock`. The system releases the lock
when its process ends.

On other file systems than this machine's there is no such lock. There Spark itself stops the second of two
jobs that share a checkpoint, when both write down the same batch. Leftovers are not removed there, since they
might be files that the other job is writing.

`compact --in-place` takes the lock for a moment, to remove old files while no archive job runs: so an archive
job tries for two seconds before it gives up.
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
    """Hold the lock. Yields "", or, if the directory cannot be locked, a warning to show to the user.
    `elsewhere`: Spark may run on another machine, so do not create the directory if it is not here.
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
    """Try to take the lock. Yields whether no archive job runs; then none can begin in the meantime."""
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
