"""Reading a file for a client: on the loop what the kernel has in memory, in a thread what it must fetch.

Most of what is asked for was written lately, and lies in the page cache. To copy that takes less time than to
hand it from a thread to the loop, for which both need the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import errno
import os

from warren.management.context import Context

READ_BYTES = 128 * 1024
NOT_AT_ONCE = {errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


async def open_file(context: Context, path: str) -> int:
    """The caller closes the file; if the client has gone meanwhile, it is closed here."""
    opening = asyncio.ensure_future(context.in_thread_with_files(os.open, path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opened: asyncio.Future[int]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        os.close(opened.result())


async def read_some(context: Context, file: int, start: int, stop: int) -> bytes | memoryview:
    """From `start` on, up to `stop`; nothing only at the end of the file."""
    count = min(READ_BYTES, stop - start)
    data = read_cached(file, count, start)
    return data if data is not None else await context.in_thread(os.pread, file, count, start)


def read_cached(file: int, count: int, start: int) -> memoryview | None:
    """None if it would have to wait for the disk, or if nobody can say."""
    buffer = bytearray(count)
    try:
        got = os.preadv(file, [buffer], start, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in NOT_AT_ONCE:
            return None
        raise
    return memoryview(buffer)[:got]
