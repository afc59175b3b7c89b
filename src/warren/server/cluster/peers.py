"""The links between this node and the others of its cluster.

Each node calls every other one, and says over that link what it has to say. So two nodes have two links, one
for each direction, and each of them learns by itself whether the other one is there. A link that ends is
opened again, for ever. If that is refused, no process listens at the other node's address.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, cast

import structlog

from warren.cluster.config import RunId, StoreId
from warren.cluster.handshake import CHALLENGE_BYTES, Called, Caller
from warren.cluster.messages import Batch, Hello, Message
from warren.cluster.wire import FrameSplitter, encode, encode_batch
from warren.cluster.wire_changes import pack_changes
from warren.cluster.wire_values import WireError
from warren.server.cluster.silence import notice_silence
from warren.server.doorway import Doorway, HasContext, Manners
from warren.server.listener import bind
from warren.server.reception import Reception
from warren.storage.replication import LogChange

CONNECT_SECONDS_MAX = 3.0
HANDSHAKE_SECONDS_MAX = 5.0
CALL_AT_ONCE_SECONDS = 0.005  # after a link has ended: whoever is refused then knows that a process is gone
CALL_AGAIN_SECONDS = 0.05  # after that, and then twice as long each time
CALL_AGAIN_SECONDS_MAX = 1.0
UNPROVED_MAX = 64  # links of callers that have not proved who they are
UNSENT_BYTES_MAX = 256 * 1024 * 1024  # a node that takes so little that this waits for it is not there

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
"""Of a socket, as the system gives it."""


class LinkOwner(Protocol):
    """Whoever the links are for. Stores are other nodes, by the ids of their data directories."""

    def link_up(self, store: StoreId, run: RunId) -> None:
        """A store can be spoken to. What was sent to it before may be lost."""

    def link_down(self, store: StoreId) -> None:
        """A store cannot be spoken to any more."""

    def peer_gone(self, store: StoreId) -> None:
        """Nobody listens where the store was: its process has ended."""

    def received(self, store: StoreId, messages: Sequence[Message]) -> None:
        """A store has said something, over the newest link that it has opened."""


class PeerAddress(Protocol):
    """Where another node is called."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class NodeCredentials:
    """What a node shows to others, and asks of them."""

    hello: Hello
    secret: bytes  # of the cluster
    random_bytes: Callable[[int], bytes]
    server_tls: HasContext | None = None  # for those who call; None without TLS
    client_tls: ssl.SSLContext | None = None  # for calling


class Peers:
    """All links of one node."""

    def __init__(
        self,
        credentials: NodeCredentials,
        owner: LinkOwner,
        run: Callable[[Callable[[], None]], None],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.credentials = credentials
        self.owner = owner
        self.run = run  # runs a turn of the event loop: it is measured, and its errors are reported
        self.log = log
        self.doorway: Doorway | None = None
        self.reception = Reception(self.loop, UNPROVED_MAX)  # of callers that are not connected yet
        self.calls: dict[StoreId, Call] = {}  # one for each other node
        self.unproved: set[IncomingLink] = set()
        self.incoming: dict[StoreId, IncomingLink] = {}  # the newest of each node
        self.is_stopped = False
        self.packed: tuple[Sequence[LogChange], list[bytes]] = ((), pack_changes(()))  # the last changes sent

    async def listen(self, host: str, port: int) -> int:
        """Let others call. Return the port."""
        manners = Manners(
            make_protocol=lambda _header: IncomingLink(self),
            tls=self.credentials.server_tls,
            proxy_protocol=False,
        )
        sockets = await bind(self.loop, host, port)
        self.doorway = Doorway(sockets, manners, self.reception, self.log)
        return self.doorway.port

    def set_peers(self, addresses: Mapping[StoreId, PeerAddress]) -> None:
        """These are the other nodes from now on. Once this node has stopped, it calls none of them."""
        if self.is_stopped:
            return
        for store, call in list(self.calls.items()):
            address = addresses.get(store)
            if address is None or (address.host, address.port) != (call.host, call.port):
                del self.calls[store]
                call.end()
        for store, address in addresses.items():
            if store not in self.calls and store != self.credentials.hello.store:
                self.calls[store] = Call(self, store, address.host, address.port)

    def send(self, store: StoreId, message: Message) -> None:
        """Say something, if there is a link. If not, nobody hears it: a link that comes up begins anew."""
        call = self.calls.get(store)
        if call is None or call.link is None:
            return
        if not isinstance(message, Batch):
            call.link.send([encode(message)])
            return
        changes, packed = self.packed
        if message.changes is not changes:  # another follower has not had the same just before
            packed = pack_changes(message.changes)
            self.packed = (message.changes, packed)
        call.link.send(encode_batch(message, packed))

    def close_link(self, store: StoreId, reason: str) -> None:
        """The other node breaks the rules: both links to it end, and begin anew."""
        self.log.warning("a link to another node is closed", store=store, reason=reason)
        call, incoming = self.calls.get(store), self.incoming.get(store)
        if call is not None and call.link is not None:
            call.link.abort()
        if incoming is not None:
            incoming.abort()

    async def stop(self) -> None:
        """End all links. Nothing happens if they have ended before."""
        self.is_stopped = True
        calls, self.calls = list(self.calls.values()), {}
        for call in calls:
            call.end()
        if self.doorway is not None:
            self.doorway.close()
        await self.reception.close()  # from now on nobody calls any more
        for link in [*self.unproved, *self.incoming.values()]:
            link.abort()
        await asyncio.gather(*(call.task for call in calls), return_exceptions=True)


class Call:
    """Calls one other node, over and over."""

    def __init__(self, peers: Peers, store: StoreId, host: str, port: int) -> None:
        self.peers = peers
        self.store = store
        self.host = host
        self.port = port
        self.link: OutgoingLink | None = None  # while the other node can be spoken to
        self.told = ""  # the trouble that the log has told of
        self.task = peers.loop.create_task(self._call_for_ever())

    def end(self) -> None:
        self.task.cancel()
        if self.link is not None:
            self.link.abort()

    async def _call_for_ever(self) -> None:
        wait = CALL_AGAIN_SECONDS
        while True:
            try:
                if await self._call():
                    wait = CALL_AT_ONCE_SECONDS
            except Exception as error:  # noqa: BLE001 - the next call may go well
                report = {"message": "an error of our own in a call of another node", "exception": error}
                self.peers.loop.call_exception_handler(report)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - not for secrets
            wait = min(max(2 * wait, CALL_AGAIN_SECONDS), CALL_AGAIN_SECONDS_MAX)

    async def _call(self) -> bool:
        """Call once, and return when the link has ended: whether there was one."""
        link = OutgoingLink(self)
        try:
            await self._connect(link)
            await link.over
        except ConnectionRefusedError:
            self.tell("nothing listens there: its process has ended, or it is called elsewhere")
            self.peers.run(partial(self.peers.owner.peer_gone, self.store))
        except (OSError, UnicodeError) as error:  # the name of a machine may be none
            self.tell(str(error) or type(error).__name__)
        finally:
            link.give_up()
        return link.was_up

    async def _connect(self, link: OutgoingLink) -> None:
        """Try one address of the other node after the other. If none takes the call, raise what one of them
        has failed with: that it was refused, only if all were.
        """
        found = await self.peers.loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        failures: list[Exception] = []
        for family, kind, protocol, _, address in found:
            try:
                connection = socket.socket(family, kind, protocol)
                await self._connect_to(link, connection, address)
            except OSError as error:
                failures.append(error)
            else:
                return
        raise next((each for each in failures if not isinstance(each, ConnectionRefusedError)), failures[0])

    async def _connect_to(self, link: OutgoingLink, connection: socket.socket, address: Address) -> None:
        loop, tls = self.peers.loop, self.peers.credentials.client_tls
        connection.setblocking(False)
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            try:
                await loop.sock_connect(connection, address)
            except BaseException:
                connection.close()
                raise
            # From here on the socket is the event loop's, which closes it if this fails or is cancelled.
            name = None if tls is None else self.host
            await loop.create_connection(lambda: link, sock=connection, ssl=tls, server_hostname=name)

    def is_up(self, link: OutgoingLink, peer: Hello) -> None:
        self.link = link
        self.told = ""
        self.peers.owner.link_up(self.store, peer.run)

    def is_down(self, link: OutgoingLink) -> None:
        if self.link is link:
            self.link = None
            self.peers.run(partial(self.peers.owner.link_down, self.store))

    def tell(self, reason: str) -> None:
        """Not again and again, while a node is away."""
        if reason != self.told:
            self.told = reason
            self.peers.log.warning(
                "another node cannot be called",
                store=self.store,
                address=f"{self.host}:{self.port}",
                reason=reason,
            )


class _Link(asyncio.Protocol, ABC):
    """One end of a link, until its handshake is over and after that."""

    def __init__(self, peers: Peers) -> None:
        self.peers = peers
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.TimerHandle | None = None  # ends a handshake that takes too long

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        notice_silence(transport.get_extra_info("socket"))
        self.timer = self.peers.loop.call_later(
            HANDSHAKE_SECONDS_MAX, self.fail, "its handshake takes too long"
        )

    def handshake_is_over(self) -> None:
        assert self.timer is not None
        self.timer.cancel()

    def connection_lost(self, error: Exception | None) -> None:
        self.handshake_is_over()

    def abort(self) -> None:
        """End the link. If it is still being made, uvloop may tell it nothing more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.transport is not None:
            self.transport.abort()

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Tell the log why the link ends, and end it."""


class OutgoingLink(_Link):
    """A link that this node has opened: it speaks, and the other end listens."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.peers)
        self.call = call
        credentials = call.peers.credentials
        challenge = credentials.random_bytes(CHALLENGE_BYTES)
        self.handshake = Caller(credentials.hello, credentials.secret, challenge)
        self.over: asyncio.Future[None] = call.peers.loop.create_future()
        self.was_up = False  # whether the other end has proved who it is
        self.has_failed = False  # and the log knows why, or need not know it
        self.unsent: list[bytes] = []  # pieces of frames, until the event loop has its turn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.write(self.handshake.mine)

    def data_received(self, data: bytes) -> None:
        if self.was_up:
            self.fail("it speaks where it should listen")
            return
        try:
            answer = self.handshake.feed(data)
        except WireError as error:
            self.fail(str(error))
            return
        peer = self.handshake.peer
        if peer is None:
            return
        if peer.store != self.call.store:
            self.fail(f"store {peer.store} is there instead")
            return
        self.was_up = True
        self.handshake_is_over()
        self.write(answer)
        self.peers.run(partial(self.call.is_up, self, peer))

    def send(self, pieces: Sequence[bytes]) -> None:
        """All that is said until the event loop waits again is one write."""
        if not self.unsent:
            self.peers.loop.call_soon(self.flush)
        self.unsent += pieces

    def flush(self) -> None:
        assert self.transport is not None
        unsent, self.unsent = self.unsent, []
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.fail("it takes nothing")
        else:
            self.transport.writelines(unsent)

    def fail(self, reason: str) -> None:
        self.has_failed = True
        self.call.tell(reason)
        self.abort()

    def give_up(self) -> None:
        """The call has ended: nobody asks any more why the link has."""
        self.has_failed = True
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if not self.was_up and not self.has_failed:
            self.call.tell("it closed the link in the handshake: its log says why")
        if not self.over.done():
            self.over.set_result(None)
        self.call.is_down(self)


class IncomingLink(_Link):
    """A link that another node has opened."""

    def __init__(self, peers: Peers) -> None:
        super().__init__(peers)
        credentials = peers.credentials
        challenge = credentials.random_bytes(CHALLENGE_BYTES)
        self.handshake = Called(credentials.hello, credentials.secret, challenge)
        self.splitter = FrameSplitter()
        self.store: StoreId | None = None  # who is at the other end, once that is proved

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peers.unproved.add(self)
        if len(self.peers.unproved) > UNPROVED_MAX:
            self.fail("too many callers have not proved who they are")

    def data_received(self, data: bytes) -> None:
        if self.store is not None and self.peers.incoming.get(self.store) is not self:
            return  # a newer link has taken its place
        try:
            messages = self._shake_hands(data) if self.store is None else self.splitter.feed(data)
        except WireError as error:
            self.fail(str(error))
            return
        if messages and self.store is not None:
            self.peers.run(partial(self.peers.owner.received, self.store, messages))

    def _shake_hands(self, data: bytes) -> list[Message]:
        answer = self.handshake.feed(data)
        if answer:
            self.write(answer)
        peer = self.handshake.peer
        if peer is None:
            return []
        self.handshake_is_over()
        self.peers.unproved.discard(self)
        older = self.peers.incoming.get(peer.store)
        self.store = peer.store
        self.peers.incoming[peer.store] = self
        if older is not None:  # what is left in its buffers is of no use
            older.abort()
        return self.splitter.feed(self.handshake.buffer)

    def fail(self, reason: str) -> None:
        assert self.transport is not None
        address = self.transport.get_extra_info("peername")
        self.peers.log.warning("a link of another node is closed", caller=str(address), reason=reason)
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.peers.unproved.discard(self)
        if self.store is not None and self.peers.incoming.get(self.store) is self:
            del self.peers.incoming[self.store]
