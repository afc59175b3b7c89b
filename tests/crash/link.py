"""An asynchronous AMQP client for load: many connections in one event loop, and every frame is seen.

After the broker's death a link still reads all that had arrived: the client knows all that it was told.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from tests.support.errors import EndedError, UnexpectedError
from tests.support.frames import (
    BODY,
    CONTENT_HEAD,
    FRAME_HEAD,
    FRAME_OVERHEAD_BYTES,
    HEADER,
    METHOD,
    Content,
    handshake,
    method_frame,
)
from tests.support.process import Address
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties, decode_properties

READ_BYTES = 1 << 18
CONNECTION_FORCED = 320
RST_ON_CLOSE = struct.pack("ii", 1, 0)

M = TypeVar("M", bound=m.Method)


class RefusedError(UnexpectedError):
    """The broker closed the channel."""

    def __init__(self, close: m.ChannelClose) -> None:
        super().__init__(f"the channel was closed: {close}")
        self.code = close.reply_code


class LinkChannel:
    """One channel.

    Answers come in the order of what was asked. Deliveries and returns go to `on_content`, confirms to
    `on_confirm`, as soon as they are read.
    """

    def __init__(self, link: Link, number: int) -> None:
        self.link = link
        self.number = number
        self.on_content: Callable[[Content[m.Method]], None] = self._unexpected
        self.on_confirm: Callable[[m.BasicAck | m.BasicNack], None] = self._unexpected
        self._answers: deque[asyncio.Future[m.Method | Content[m.Method]]] = deque()
        self._carrier: m.Method | None = None
        self._properties = BasicProperties()
        self._size = 0
        self._body = bytearray()
        self._changed = asyncio.Event()

    async def send(self, *methods: m.Method) -> None:
        await self.link.send(b"".join(method_frame(self.number, method) for method in methods))

    async def call(self, method: m.Method, answer: type[M]) -> M:
        got = (await self.call_all([method]))[0]
        if not isinstance(got, answer):
            raise UnexpectedError(f"waited for {answer.__name__} on channel {self.number}, but got {got}")
        return got

    async def call_all(self, methods: Iterable[m.Method]) -> list[m.Method | Content[m.Method]]:
        """Asks all at once, and gives the answers."""
        frames = [method_frame(self.number, method) for method in methods]
        try:
            return await self.ask(b"".join(frames), len(frames))
        except RefusedError:
            await self.send(m.ChannelCloseOk())
            raise

    async def ask(self, data: bytes, count: int) -> list[m.Method | Content[m.Method]]:
        """Sends what has so many answers, and gives them."""
        futures = [asyncio.get_running_loop().create_future() for _ in range(count)]
        self._answers += futures
        await self.link.send(data)
        return [await future for future in futures]

    async def get(self, queue: str) -> Content[m.BasicGetOk] | None:
        got = (await self.call_all([m.BasicGet(queue=queue)]))[0]
        return got if isinstance(got, Content) else None  # type: ignore[return-value]  # nothing else has content

    async def close(self) -> None:
        await self.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)

    async def wait(self) -> None:
        """Until something has come to `on_content` or `on_confirm` since the last time."""
        await self._changed.wait()
        self._changed.clear()
        self.link.check()

    def end(self, error: Exception) -> None:
        for future in self._answers:
            if not future.done():
                future.set_exception(error)
                future.exception()  # looked at, should nobody wait for it any more
        self._answers.clear()
        self._changed.set()

    # --- what arrives ---

    def take_frame(self, kind: int, payload: bytes) -> None:
        if kind == METHOD:
            self._take_method(m.decode_method(payload))
            return
        if kind == HEADER:
            self._size = CONTENT_HEAD.unpack_from(payload)[2]
            self._properties = decode_properties(payload[CONTENT_HEAD.size :])
            self._body = bytearray()
        elif kind == BODY:
            self._body += payload
        if self._carrier is not None and len(self._body) >= self._size:
            content = Content(self._carrier, self._properties, bytes(self._body))
            self._carrier = None
            self._take_content(content)

    def _take_method(self, method: m.Method) -> None:
        if isinstance(method, m.BasicDeliver | m.BasicGetOk | m.BasicReturn):
            self._carrier = method
        elif isinstance(method, m.BasicAck | m.BasicNack):
            self.on_confirm(method)
            self._changed.set()
        elif isinstance(method, m.ChannelClose):
            self.end(RefusedError(method))
        else:
            self._answer(method)

    def _take_content(self, content: Content[m.Method]) -> None:
        if isinstance(content.method, m.BasicGetOk):
            self._answer(content)
        else:
            self.on_content(content)
            self._changed.set()

    def _answer(self, answer: m.Method | Content[m.Method]) -> None:
        if not self._answers:
            self._unexpected(answer)
        future = self._answers.popleft()
        if not future.done():
            future.set_result(answer)

    def _unexpected(self, what: object) -> None:
        raise UnexpectedError(f"nobody waited for {what} on channel {self.number}")


class Link:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.error: Exception | None = None
        self.channels: dict[int, LinkChannel] = {0: LinkChannel(self, 0)}
        self._sending = asyncio.Lock()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, address: Address) -> Link:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (address.host, address.port))
        except OSError as error:
            sock.close()
            raise EndedError("the broker does not listen") from error
        link = cls(sock)
        try:
            await link._shake_hands()
        except BaseException:
            await link.abort()
            raise
        return link

    async def _shake_hands(self) -> None:
        *_, opened = await self.channels[0].ask(b"".join(handshake()), 3)  # start, tune, open-ok
        if not isinstance(opened, m.ConnectionOpenOk):
            raise UnexpectedError(f"waited for connection.open-ok, but got {opened}")

    async def channel(self) -> LinkChannel:
        """Opens a channel with a number of its own."""
        channel = LinkChannel(self, len(self.channels))
        self.channels[channel.number] = channel
        await channel.call(m.ChannelOpen(), m.ChannelOpenOk)
        return channel

    async def send(self, data: bytes) -> None:
        self.check()
        try:
            await self._send(data)
        except OSError:
            await asyncio.wait([self._reading])
            self.check()

    async def _send(self, data: bytes) -> None:
        async with self._sending:
            await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        error: Exception = EndedError("the broker closed the socket")
        try:
            while data := await loop.sock_recv(self.socket, READ_BYTES):
                buffer += data
                self._take_frames(buffer)
                if self.error is not None:
                    await self._send(method_frame(0, m.ConnectionCloseOk()))
        except ConnectionError:
            pass
        except Exception as wrong:  # noqa: BLE001 - whoever uses the link shall hear of it
            error = wrong
        self._end(error)

    def _take_frames(self, buffer: bytearray) -> None:
        at = 0
        while at + FRAME_HEAD.size <= len(buffer):
            kind, channel, size = FRAME_HEAD.unpack_from(buffer, at)
            stop = at + FRAME_OVERHEAD_BYTES + size
            if stop > len(buffer):
                break
            payload = bytes(buffer[at + FRAME_HEAD.size : stop - 1])
            at = stop
            self._take_frame(kind, channel, payload)
        del buffer[:at]

    def _take_frame(self, kind: int, channel: int, payload: bytes) -> None:
        method = m.decode_method(payload) if channel == 0 and kind == METHOD else None
        if not isinstance(method, m.ConnectionClose):
            self.channels[channel].take_frame(kind, payload)
        elif method.reply_code == CONNECTION_FORCED:
            self._end(EndedError("the broker closed the connection"))
        else:
            self._end(UnexpectedError(f"the connection was closed: {method}"))

    def _end(self, error: Exception) -> None:
        self.error = self.error or error
        for channel in self.channels.values():
            channel.end(self.error)

    # --- the end ---

    async def close(self) -> None:
        """Closes as a good client does."""
        await self.channels[0].call(m.ConnectionClose(reply_code=200), m.ConnectionCloseOk)
        await self.abort()

    async def abort(self, *, rudely: bool = False) -> None:
        """Closes the socket without a word, with a FIN or with an RST; what comes is not read any more."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._end(EndedError("the client closed the socket"))
        if rudely and self.socket.fileno() >= 0:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
        self.socket.close()


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Link]:
    """A link that is gone afterwards, however that comes."""
    link = await Link.open(address)
    try:
        yield link
    finally:
        await link.abort()
