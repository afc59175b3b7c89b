"""A way between two brokers as over a long distance: bytes arrive late, and connections are cut."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

CHUNK_BYTES = 64 * 1024


class Wan:
    """Forwards connections to an address. What goes through arrives `delay_seconds` later, both ways."""

    def __init__(self, host: str, port: int, delay_seconds: float) -> None:
        self.host = host
        self.port = port
        self.delay_seconds = delay_seconds
        self.writers: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.server.close()
        self.cut()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.server.wait_closed()

    @property
    def address(self) -> str:
        host, port = self.server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def cut(self) -> None:
        """All connections break; new ones can be made."""
        for writer in list(self.writers):
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(self.host, self.port)
        self.writers |= {writer, there_writer}
        for source, target in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, target))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(CHUNK_BYTES):
                    loop.call_later(self.delay_seconds, target.write, data)
                    await asyncio.sleep(0)
            loop.call_later(self.delay_seconds, target.close)
        finally:
            self.writers.discard(target)
