"""A relay's connection to a broker: one channel, on the event loop, and perhaps a second one for commands.

The link logs in, asks and is answered, one question at a time. Deliveries and confirms go to its owner, some
at a time, as they come. Whatever ends the link ends it once: `ended` then has the reason.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar, cast

from warren.amqp.methods import (
    BasicCancel,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionUnblocked,
    Method,
)
from warren.amqp.table import Table
from warren.amqp.writer import Output
from warren.broker.message import Message
from warren.client.dial import closing, read_method, unexpected
from warren.client.dialogue import CAPABILITIES, PROTOCOL_HEADER
from warren.client.errors import ClientError
from warren.client.frames import CHANNEL, method_frame
from warren.client.login import credentials, tuned
from warren.client.tls_socket import server_name, tls_context
from warren.client.uri import Uri
from warren.relay.inflow import Inflow

ANSWER_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 10.0
GOODBYE = ConnectionClose(reply_code=200, reply_text="the relay ends")
GOODBYE_SECONDS_MAX = 2.0  # a broker that ends waits for its relays
HEARTBEAT_SECONDS = 10
"""If the broker asks for less often, it is as often as we want, or as the URI does; a dead peer is found
after three of these.
"""
COMMANDS = CHANNEL + 1  # the second channel

UNSENT_BYTES_HIGH, UNSENT_BYTES_LOW = 1024 * 1024, 256 * 1024
MISSED_MAX = 3
M = TypeVar("M", bound=Method)


class Transport(Protocol):
    """What a link needs of the way to its broker: a socket's transport, or a pipe within this process."""

    def write(self, data: bytes | memoryview) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Owner(Protocol):
    """Whom a link tells what arrives. A call that raises ends the link, with that as the reason."""

    def delivered(self, deliveries: list[tuple[int, bool, Message]]) -> None: ...
    def confirmed(self, confirms: list[tuple[int, bool, bool]]) -> None: ...

    def room_changed(self) -> None:
        """The link takes publishes again, or takes none for now: see `RelayLink.may_publish`."""


class RelayLink(asyncio.Protocol):
    def __init__(self, uri: Uri, product: str, name: str = "") -> None:
        self.uri = uri
        self.product = product  # as which we introduce ourselves
        self.name = name  # of the connection, for lists of connections
        self.loop = asyncio.get_running_loop()
        self.transport: Transport | None = None
        self.inflow = Inflow()
        self.output = Output([], None)  # frames that are to be sent with the next `flush`
        self.owner: Owner | None = None  # set when the link is logged in
        self.reply: type[Method] | None = None  # the method that is waited for
        self.answer: asyncio.Future[Method] | None = None
        self.ended: asyncio.Future[Exception] = self.loop.create_future()  # why the link has ended
        self.server_properties: Table = {}  # what the broker says of itself
        self.blocked = False  # whether the broker wants no publishes: an alarm
        self.congested = False  # whether the socket takes no more for now
        self.channel_max = 0  # as agreed; 0: no limit
        self.commands = CHANNEL  # the channel for commands
        self.is_paused = False  # whether nothing is read
        self.is_closing = False  # whether we have said goodbye
        self.heartbeat_seconds = 0
        self.heard_at = self.loop.time()
        self.beat: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RelayLink to {self.uri.address}>"

    @property
    def may_publish(self) -> bool:
        return not self.blocked and not self.congested and not self.ended.done()

    # --- the transport's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("Transport", transport)
        if isinstance(transport, asyncio.Transport):
            transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH, low=UNSENT_BYTES_LOW)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        try:
            self.inflow.feed(data)
            self._tell_confirms()  # first: they count also if a method ends the link
            self._take_methods()
            self._tell_deliveries()
        except ClientError as error:
            self.end(error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours ends this link, and is told with its end
            self.end(error)

    def eof_received(self) -> None:
        self.end(ClientError(f"the broker at {self.uri.address} dropped the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        self.end(ClientError(f"the connection to {self.uri.address} broke{reason}"))

    def pause(self) -> None:
        """Read nothing for now. Meanwhile the broker's silence means nothing."""
        if not self.is_paused and self.transport is not None:
            self.is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.is_paused and self.transport is not None:
            self.is_paused = False
            self.heard_at = self.loop.time()
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.congested = True
        self._room_changed()

    def resume_writing(self) -> None:
        self.congested = False
        self._room_changed()

    # --- what arrives ---

    def _take_methods(self) -> None:
        methods = self.inflow.methods[:]
        self.inflow.methods.clear()
        for channel, payload in methods:
            self._take_method(channel, read_method(payload))

    def _take_method(self, channel: int, method: Method) -> None:
        closed = closing(channel, method)
        if closed is not None:
            answer, error = closed
            if self.transport is not None:
                self.transport.write(answer)
                if channel:  # the connection is still open: without a word, brokers log that it broke
                    self.transport.write(method_frame(0, GOODBYE))
            raise error
        if isinstance(method, BasicCancel):
            raise ClientError(f"the queue at {self.uri.address} was deleted")
        if isinstance(method, ConnectionBlocked | ConnectionUnblocked):
            self.blocked = isinstance(method, ConnectionBlocked)
            self._room_changed()
        elif self.reply is not None and isinstance(method, self.reply) and self.answer is not None:
            self.reply = None
            if not self.answer.done():
                self.answer.set_result(method)
        elif not self.is_closing:  # else it may be an answer that nobody waits for any more
            raise unexpected(method)

    def _tell_confirms(self) -> None:
        """Those that come before the owner is set stay in their list until then."""
        if self.owner is not None and self.inflow.confirms and not self.ended.done():
            confirms = self.inflow.confirms[:]
            self.inflow.confirms.clear()
            self.owner.confirmed(confirms)

    def _tell_deliveries(self) -> None:
        """The same holds for these."""
        if self.owner is not None and self.inflow.deliveries and not self.ended.done():
            deliveries = self.inflow.deliveries[:]
            self.inflow.deliveries.clear()
            self.owner.delivered(deliveries)

    def _room_changed(self) -> None:
        if self.owner is not None:
            self.owner.room_changed()

    # --- what is sent ---

    def flush(self) -> None:
        chunks = self.output.take()
        if self.transport is not None and not self.ended.done():
            for chunk in chunks:
                self.transport.write(chunk)

    async def ask(self, method: Method, reply: type[M], *, channel: int = CHANNEL) -> M:
        """Send a method, and wait for its answer."""
        self.output.method(channel, method.encode())
        return await self._answer(reply)

    async def _answer(self, reply: type[M]) -> M:
        assert self.answer is None, "one question at a time"
        self.reply, self.answer = reply, self.loop.create_future()
        self.flush()
        try:
            awaited: set[asyncio.Future[Any]] = {self.answer, self.ended}
            await asyncio.wait(
                awaited,
                timeout=ANSWER_SECONDS_MAX,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self.answer.done():
                return cast("M", self.answer.result())
            if self.ended.done():
                raise self.ended.result()
            raise ClientError(
                f"the broker at {self.uri.address} did not answer within {ANSWER_SECONDS_MAX:.0f} s"
            )
        finally:
            self.reply = self.answer = None

    # --- beginning and end ---

    async def log_in(self) -> None:
        """Log in, and open the channel."""
        assert self.transport is not None, "it is connected"
        self.transport.write(PROTOCOL_HEADER)
        start = await self._answer(ConnectionStart)
        self.server_properties = start.server_properties
        mechanism, response = credentials(self.uri, start.mechanisms)
        properties: Table = {"product": self.product, "capabilities": CAPABILITIES}
        if self.name:
            properties["connection_name"] = self.name
        start_ok = ConnectionStartOk(client_properties=properties, mechanism=mechanism, response=response)
        self._tune(await self.ask(start_ok, ConnectionTune, channel=0))
        await self.ask(ConnectionOpen(virtual_host=self.uri.vhost), ConnectionOpenOk, channel=0)
        await self.ask(ChannelOpen(), ChannelOpenOk)
        self.show_life()

    def _tune(self, tune: ConnectionTune) -> None:
        wanted = self.uri.tuning.heartbeat_seconds
        if wanted is None:
            wanted = HEARTBEAT_SECONDS
        agreed = tuned(self.uri, tune, heartbeat_seconds=min(tune.heartbeat or wanted, wanted))
        self.output.method(0, agreed.encode())
        self.output.frame_max, self.channel_max = agreed.frame_max, agreed.channel_max
        self.heartbeat_seconds = agreed.heartbeat

    async def open_commands(self) -> None:
        """Have a channel for commands, if the broker allows two."""
        if self.channel_max == 0 or self.channel_max >= COMMANDS:
            await self.ask(ChannelOpen(), ChannelOpenOk, channel=COMMANDS)
            self.commands = COMMANDS

    def show_life(self) -> None:
        """Show that we live, and see whether the broker does."""
        if self.ended.done() or not self.heartbeat_seconds:
            return
        is_heard = self.loop.time() - self.heard_at <= MISSED_MAX * self.heartbeat_seconds
        if not is_heard and not self.is_paused:
            self.end(ClientError(f"the broker at {self.uri.address} is silent"))
            return
        self.output.heartbeat()
        self.flush()
        self.beat = self.loop.call_later(self.heartbeat_seconds / 2, self.show_life)

    def attach(self, owner: Owner) -> None:
        """From now on tell this owner, also of what has come already."""
        self.owner = owner
        self._tell_confirms()
        self._tell_deliveries()

    def end(self, reason: Exception) -> None:
        """The link cannot go on."""
        if self.beat is not None:
            self.beat.cancel()
        if not self.ended.done():
            self.ended.set_result(reason)
            if self.transport is not None:
                self.transport.close()

    async def close(self) -> None:
        """Say goodbye, if the broker still listens."""
        try:
            if not self.ended.done():
                self.is_closing = True
                self.resume()
                async with asyncio.timeout(GOODBYE_SECONDS_MAX):
                    await self.ask(GOODBYE, ConnectionCloseOk, channel=0)
        except ClientError as error:
            self.end(error)
        except TimeoutError:
            self.end(ClientError(f"the broker at {self.uri.address} does not say goodbye"))
        finally:
            self.end(ClientError("closed"))
            if self.transport is not None:
                self.transport.abort()


async def open_link(uri: Uri, product: str, name: str = "") -> RelayLink:
    """Connect over a socket, and log in."""
    loop = asyncio.get_running_loop()
    limit_s = uri.tuning.connect_seconds or CONNECT_SECONDS_MAX
    try:
        context = None if uri.tls is None else tls_context(uri.tls)  # which reads files
        async with asyncio.timeout(limit_s):
            _, link = await loop.create_connection(
                lambda: RelayLink(uri, product, name),
                uri.host,
                uri.port,
                ssl=context,
                server_hostname=None if uri.tls is None else server_name(uri, uri.tls) or "",
            )
    except TimeoutError:
        raise ClientError(f"cannot connect to {uri.address}: no answer within {limit_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ClientError(f"cannot trust {uri.address}: {error.verify_message}") from error
    except (OSError, UnicodeError) as error:  # UnicodeError: the name of the host is none
        reason = getattr(error, "strerror", None) or error
        raise ClientError(f"cannot connect to {uri.address}: {reason}") from error
    return await logged_in(link)


@asynccontextmanager
async def closed_on_failure(link: RelayLink) -> AsyncIterator[RelayLink]:
    """Close the link if the block does not end well, also if its task is cancelled."""
    try:
        yield link
    except BaseException:
        await link.close()
        raise


async def logged_in(link: RelayLink) -> RelayLink:
    try:
        await link.log_in()
    except BaseException:
        link.end(ClientError("the login failed"))
        raise
    return link
