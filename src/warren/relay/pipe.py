"""The way from a relay to its own broker, without a socket: bytes go from hand to hand in this process.

A `Pipe` is the link of a server's `Connection` at one end, and the transport of a `RelayLink` at the other.
Bytes are handed over in a turn of their own, so that neither end is called while it is at work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from warren.broker.access import IMPERSONATOR, Permission, User
from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.relay.link import UNSENT_BYTES_HIGH, UNSENT_BYTES_LOW, RelayLink, logged_in
from warren.server.app import Broker
from warren.session.connection import Connection
from warren.session.peer import Peer

HERE = "127.0.0.1"
NUMBERS = count(1)  # of pipes, in place of a port, so that each connection has its own name


class RelayUser(User):
    """Who a relay is in its own broker: somebody who may do everything in its vhost, nothing elsewhere."""

    def __init__(self, vhost: str, *, may_impersonate: bool = False) -> None:
        """If it may impersonate, messages may name any user as their publisher."""
        super().__init__("none", None, frozenset({IMPERSONATOR} if may_impersonate else ()))
        self.vhost = vhost

    def may_enter(self, vhost: str) -> bool:
        return vhost == self.vhost

    def allows(self, permission: Permission, vhost: str, name: str) -> bool:
        return vhost == self.vhost

    def allows_topic(self, permission: Permission, vhost: str, exchange: str, routing_key: str) -> bool:
        return vhost == self.vhost


class Direction:
    """Bytes on their way to one of the two ends, which takes them in turns of their own."""

    def __init__(self, take: Callable[[], None]) -> None:
        self.take = take  # called when there are bytes and the end reads
        self.loop = asyncio.get_running_loop()
        self.chunks: deque[memoryview] = deque()
        self.bytes = 0  # of all chunks
        self.is_read = True  # whether the end takes bytes now
        self.is_scheduled = False  # whether `_turn` will be called

    def put(self, data: bytes | memoryview) -> None:
        self.chunks.append(memoryview(data))
        self.bytes += len(data)
        self.schedule()

    def schedule(self) -> None:
        if not self.is_scheduled and self.is_read and self.chunks:
            self.is_scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.is_scheduled = False
        if self.is_read and self.chunks:
            self.take()
            self.schedule()

    def pause(self) -> None:
        self.is_read = False

    def resume(self) -> None:
        self.is_read = True
        self.schedule()

    def take_all(self) -> bytes:
        data = b"".join(self.chunks)
        self.clear()
        return data

    def take_into(self, room: memoryview) -> int:
        """Fill this room as far as the bytes go; return how many they were."""
        size = 0
        while self.chunks and size < len(room):
            data = self.chunks[0]
            part = min(len(data), len(room) - size)
            room[size : size + part] = data[:part]
            size += part
            if part == len(data):
                self.chunks.popleft()
            else:
                self.chunks[0] = data[part:]
        self.bytes -= size
        return size

    def clear(self) -> None:
        self.chunks.clear()
        self.bytes = 0


class Pipe:
    """The connection's `Link`; its other end is a `RelayEnd`."""

    def __init__(self, broker: Broker, relay: RelayLink, user: User | None) -> None:
        self.broker = broker
        self.relay = relay
        self.loop = asyncio.get_running_loop()
        self.to_broker = Direction(self._feed_broker)
        self.to_relay = Direction(self._feed_relay)
        self.is_congested = False  # whether the relay is told to write no more for now
        self.is_closed = False  # by either end
        peer = Peer(host=HERE, port=next(NUMBERS), here_host=HERE, here_port=0, user=user)
        self.connection = Connection(broker.read_buffer, broker.node, self, peer)

    def _feed_relay(self) -> None:
        self.relay.data_received(self.to_relay.take_all())

    def _feed_broker(self) -> None:
        """Give the broker as much as it takes in one read."""
        self.broker.world.watchdog.run(self._received)
        self.broker.storage.after_read()
        self.see_congestion()

    def _received(self) -> None:
        self.connection.received(self.to_broker.take_into(self.connection.writable_view()))

    def see_congestion(self) -> None:
        if self.is_congested and self.to_broker.bytes <= UNSENT_BYTES_LOW:
            self.is_congested = False
            self.relay.resume_writing()
        elif not self.is_congested and self.to_broker.bytes >= UNSENT_BYTES_HIGH:
            self.is_congested = True
            self.relay.pause_writing()

    # --- the connection's link ---

    def send(self, chunks: Sequence[bytes | memoryview]) -> None:
        if not self.is_closed:
            for chunk in chunks:
                self.to_relay.put(chunk)

    def pause_reading(self) -> None:
        self.to_broker.pause()

    def resume_reading(self) -> None:
        self.to_broker.resume()

    def unsent_bytes(self) -> int:
        return self.to_relay.bytes

    def close(self) -> None:
        """The relay gets what was sent, and then hears of the end."""
        if not self.is_closed:
            self.is_closed = True
            self.to_broker.clear()
            self.loop.call_soon(self.relay.connection_lost, None)

    def reset(self) -> None:
        self.to_relay.clear()
        self.close()


class RelayEnd:
    """The relay's end of a pipe: its `Transport`."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def write(self, data: bytes | memoryview) -> None:
        if not self.pipe.is_closed:
            self.pipe.to_broker.put(data)
            self.pipe.see_congestion()

    def pause_reading(self) -> None:
        self.pipe.to_relay.pause()

    def resume_reading(self) -> None:
        self.pipe.to_relay.resume()

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.pipe.is_closed:
            self.pipe.is_closed = True
            self.pipe.to_broker.clear()
            self.pipe.to_relay.clear()
            self.pipe.connection.lost()


async def open_pipe(broker: Broker, uri: Uri, product: str, user: User | None, name: str = "") -> RelayLink:
    """Connect to this broker, as this user, or as the one whom the URI names. There are no heartbeats: both
    ends live and die together, and a process that was stopped for a while would take itself for dead.
    """
    uri = replace(uri, tuning=replace(uri.tuning, heartbeat_seconds=0))
    link = RelayLink(uri, product, name)
    link.transport = RelayEnd(Pipe(broker, link, user))
    if link.ended.done():
        raise ClientError("the broker ends")
    return await logged_in(link)
