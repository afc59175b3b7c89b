"""A TCP proxy before the broker whose connections a test can cut, as a network does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.process import Address

READ_BYTES_MAX = 65_536
FROM_PROXY = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672\r\n"
"""A header of the PROXY protocol: the client is at 192.0.2.7."""


class Proxy:
    """Passes bytes both ways, behind `header`, each `delay_seconds` late. `cut` drops all connections; new
    ones are always taken.
    """

    def __init__(self, target: Address, header: bytes, delay_seconds: float) -> None:
        self.target = target
        self.header = header
        self.delay_seconds = delay_seconds
        self.address = Address("", 0)
        self.connection_count = 0
        self.writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        broker_reader, broker_writer = await asyncio.open_connection(self.target.host, self.target.port)
        pair = {writer, broker_writer}
        self.writers |= pair
        broker_writer.write(self.header)
        try:
            await asyncio.gather(self.copy(reader, broker_writer), self.copy(broker_reader, writer))
        finally:
            self.writers -= pair
            for end in pair:
                end.close()

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES_MAX):
                if self.delay_seconds:
                    asyncio.get_running_loop().call_later(self.delay_seconds, writer.write, data)
                else:
                    writer.write(data)
                await writer.drain()
        await asyncio.sleep(self.delay_seconds)  # until the last bytes are written
        writer.close()


@asynccontextmanager
async def proxy_to(
    target: Address, header: bytes = b"", *, delay_seconds: float = 0.0
) -> AsyncIterator[Proxy]:
    proxy = Proxy(target, header, delay_seconds)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = Address(*server.sockets[0].getsockname()[:2])
    async with server:
        yield proxy
        proxy.cut()
