"""Reading a file for a client: on the loop if the kernel has the bytes in its page cache, else in a thread.

Most bytes that clients ask for were written lately, and are in the page cache. Copying them takes less time
than handing them from a thread to the loop, for which both need the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import errno
import os

from warren.management.context import Context

READ_BYTES = 128 * 1024
NOT_AT_ONCE = {errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


async def open_file(context: Context, path: str) -> int:
    """Open a file in a thread. The caller closes it; if the client hangs up meanwhile, it is closed here."""
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
    """At most `READ_BYTES` from `start` on, and none from `stop` on. Empty only at the end of the file."""
    count = min(READ_BYTES, stop - start)
    data = read_cached(file, count, start)
    return data if data is not None else await context.in_thread(os.pread, file, count, start)


def read_cached(file: int, count: int, start: int) -> memoryview | None:
    """The bytes that the page cache has; None if it has none of them, or the file system cannot tell."""
    buffer = bytearray(count)
    try:
        got = os.preadv(file, [buffer], start, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in NOT_AT_ONCE:
            return None
        raise
    return memoryview(buffer)[:got]
