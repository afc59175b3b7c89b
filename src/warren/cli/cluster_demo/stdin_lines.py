"""Lines of the standard input, whatever it is: a terminal, a pipe or a file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

READ_BYTES = 4096


def read_lines(descriptor: int, take: Callable[[str], None], end: Callable[[], None]) -> None:
    """Call `take` on the event loop with every line, and then `end`. The reading is done by a thread that
    nobody waits for: it is left when the program ends. It does not use `sys.stdin`, whose lock it would keep.
    """
    loop = asyncio.get_running_loop()

    def call(function: Callable[..., None], *arguments: str) -> bool:
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: the program ends
            return False
        return True

    def read() -> None:
        rest = b""
        while True:
            try:
                data = os.read(descriptor, READ_BYTES)
            except OSError:  # there is no standard input
                data = b""
            if not data:
                call(end)
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if not call(take, line.decode(errors="replace")):
                    return

    threading.Thread(target=read, name="stdin", daemon=True).start()
