"""A federation link: carries messages of one upstream to one exchange or queue here.

What differs between exchanges and queues is the link's `Side`. Messages are published here over a pipe, as
the relay itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from warren.amqp.methods import (
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.relay.ends import End, open_end, read_end
from warren.relay.federation_upstream import MULTIPLE, Upstream
from warren.relay.link import RelayLink, closed_on_failure
from warren.relay.pipe import RelayEnd, RelayUser, open_pipe
from warren.relay.pump import NO_ACK, ON_CONFIRM, Pump, Rewrite
from warren.relay.shovel import NOT_FOUND, close_both, pick
from warren.relay.supervisor import State
from warren.server.app import Broker

PRODUCT = "WarrenMQ federation link"
EXCHANGE, QUEUE = "exchange", "queue"
STARTING, RUNNING, ERROR = "starting", "running", "error"  # the states of a link, as RabbitMQ names them
CLEAN_UP_SECONDS_MAX = 5.0
ID_DIGITS = 8


class Place(NamedTuple):
    """What is federated, here."""

    vhost: str
    kind: str  # EXCHANGE or QUEUE
    name: str


class LinkKey(NamedTuple):
    place: Place
    upstream: str  # the name of the upstream
    there: str  # the name of the exchange or queue there

    @property
    def id(self) -> str:
        """For the HTTP API."""
        return f"{crc32(repr(self).encode()):0{ID_DIGITS}x}"


def status_of(state: State) -> str:
    return ERROR if state is State.TERMINATED else state.value


class Upstairs:
    """The way to an upstream: opens links to one of its brokers."""

    def __init__(self, broker: Broker, vhost: str, end: End, name: str) -> None:
        self.broker = broker
        self.vhost = vhost  # of this broker
        self.end = end
        self.name = name  # of its connections, in lists of connections

    async def open(self) -> RelayLink:
        return await open_end(self.broker, self.end, self.vhost, PRODUCT, self.name)

    async def open_for(self, upstream: Upstream) -> RelayLink:
        """A link that messages come over, with the channels that the upstream is to have."""
        link = await self.open()
        async with closed_on_failure(link):
            if upstream.channel_use_mode == MULTIPLE:
                await link.open_commands()
        return link


class Side(Protocol):
    """What a link does upstream, for an exchange or a queue."""

    changed: asyncio.Event
    """Is set when bindings or consumers here have changed."""

    async def prepare(self, upstairs: Upstairs) -> RelayLink:
        """A link with all in place, so that messages can be consumed."""

    def rewrite(self, upstream: RelayLink, end: End) -> Rewrite: ...

    async def follow(self, upstream: RelayLink, end: End) -> None:
        """Consume, and have the upstream follow what happens here, for as long as the link lives."""

    async def clean_up(self, upstairs: Upstairs) -> None:
        """Delete what the link has made upstream."""


class FederationLink:
    def __init__(self, broker: Broker, key: LinkKey, upstream: Upstream, side: Side) -> None:
        self.broker = broker
        self.key = key
        self.upstream = upstream
        self.side = side
        self.turn = 0  # which of several URIs is tried next
        self.end = upstream.ends[0]  # to which it is connected, or was last
        self.local_connection = ""  # the name of its connection here, while it runs
        self.pump: Pump | None = None  # while it runs

    def __repr__(self) -> str:
        return f"<FederationLink of {self.key.place.kind} {self.key.place.name!r} to {self.upstream.name!r}>"

    @property
    def name(self) -> str:
        """Of its connections, here and upstream."""
        kind, name = self.key.place.kind, self.key.place.name
        return f"Federation link (upstream: {self.upstream.name}, {kind}: {name})"

    @property
    def reconnect_seconds(self) -> float:
        return self.upstream.reconnect_seconds

    async def run(self, running: Callable[[], None]) -> bool:
        """Carry messages until something breaks, which raises `ClientError`."""
        local = upstream = None
        self.end = pick(self.upstream.ends, self.turn)
        self.turn += 1
        try:
            local = await self._open_local()
            upstream = await self.side.prepare(self._upstairs())
            if self.upstream.prefetch_count and self.upstream.ack_mode != NO_ACK:
                await upstream.ask(BasicQos(prefetch_count=self.upstream.prefetch_count), BasicQosOk)
            rewrite = self.side.rewrite(upstream, self.end)
            self.pump = Pump(upstream, local, rewrite, ack_mode=self.upstream.ack_mode)
            self.pump.start()
            running()
            await self._follow(self.pump)
        finally:
            self.pump = None
            self.local_connection = ""
            await close_both(upstream, local)
        return False

    def stop_taking(self) -> None:
        if self.pump is not None:
            self.pump.stop_taking()

    async def _open_local(self) -> RelayLink:
        vhost = self.key.place.vhost
        user = RelayUser(vhost, may_impersonate=self.upstream.trust_user_id)
        link = await open_pipe(self.broker, read_end("amqp://", vhost).uri, PRODUCT, user, self.name)
        if isinstance(link.transport, RelayEnd):
            self.local_connection = link.transport.pipe.connection.name
        async with closed_on_failure(link):
            if self.upstream.ack_mode == ON_CONFIRM:
                await link.ask(ConfirmSelect(), ConfirmSelectOk)
        return link

    def _upstairs(self) -> Upstairs:
        return Upstairs(self.broker, self.key.place.vhost, self.end, self.name)

    async def _follow(self, pump: Pump) -> None:
        following = asyncio.create_task(self.side.follow(pump.source, self.end))
        try:
            ends: set[asyncio.Future[Any]] = {pump.source.ended, pump.destination.ended, following}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for link in (pump.source, pump.destination):
                if link.ended.done():
                    raise link.ended.result()
            await following
        except asyncio.CancelledError:
            await pump.drain()
            raise
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def clean_up(self) -> None:
        """Delete what was made upstream, if the broker there can be reached soon."""
        try:
            async with asyncio.timeout(CLEAN_UP_SECONDS_MAX):
                await self.side.clean_up(self._upstairs())
        except (ClientError, TimeoutError) as error:
            name = self.upstream.name
            self.broker.log.warning("federation left its queue upstream", upstream=name, reason=str(error))


async def ask_once(upstairs: Upstairs, method: Method, reply: type[Method]) -> None:
    """Ask over a link of its own, since an error ends the link."""
    link = await upstairs.open()
    try:
        await link.ask(method, reply)
    finally:
        await link.close()


async def exists(upstairs: Upstairs, passive: ExchangeDeclare | QueueDeclare) -> bool:
    """Whether there is such an exchange or queue."""
    try:
        reply = ExchangeDeclareOk if isinstance(passive, ExchangeDeclare) else QueueDeclareOk
        await ask_once(upstairs, passive, reply)
    except ClosedByBrokerError as error:
        if error.code != NOT_FOUND:
            raise
        return False
    return True
