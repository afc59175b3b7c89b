"""A broker without sockets, threads or a clock, for tests that feed it bytes and look at what it answers.

Time stands still until a test moves it; what would happen in a thread or later happens in `run`. Whatever the
broker reports as its own mistake is kept in `failures`, and is a test's failure.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from warren.amqp.reader import ReadBuffer
from warren.broker import commands
from warren.broker.access import Permissions
from warren.broker.events import Failure
from warren.broker.node import Limits, Node
from warren.broker.passwords import PasswordHash
from warren.broker.session.connection import Connection
from warren.server.app import exchange_types

T = TypeVar("T")


class FakeWorld:
    def __init__(self) -> None:
        self.time = 1000.0
        self.soon: deque[Callable[[], None]] = deque()
        self.later: list[tuple[float, int, Callable[[], None]]] = []
        self.counter = itertools.count()
        self.failures: list[Exception] = []

    def now(self) -> float:
        return self.time

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self.later, (self.time + seconds, next(self.counter), callback))

    def random_bytes(self, count: int) -> bytes:
        return hashlib.blake2b(b"%d" % next(self.counter), digest_size=count).digest()

    def in_thread(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self.call_soon(lambda: done(work()))

    def report(self, error: Exception) -> None:
        self.failures.append(error)

    def run(self) -> None:
        """All that is due, and what follows from it."""
        while self.soon:
            self.soon.popleft()()

    def advance(self, seconds: float) -> None:
        self.time += seconds
        while self.later and self.later[0][0] <= self.time:
            heapq.heappop(self.later)[2]()
        self.run()


class FakeLink:
    """Keeps what is sent, and remembers whether it may bring more."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.reading = True
        self.closed = False

    def send(self, chunks: Sequence[bytes | memoryview]) -> None:
        for chunk in chunks:
            self.sent += chunk

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def unsent_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        """What was sent since the last time."""
        sent = bytes(self.sent)
        self.sent.clear()
        return sent


class FakePeer:
    """One connection with its link. Bytes wait while the broker does not read."""

    def __init__(self, broker: FakeBroker, name: str) -> None:
        self.world = broker.world
        self.link = FakeLink()
        self.waiting: deque[bytes] = deque()
        self.connection = Connection(broker.buffer, broker.node, self.link, name, is_loopback=True)

    def feed(self, data: bytes) -> None:
        self.waiting.append(data)
        self.run()

    def run(self) -> None:
        self.world.run()
        while self.waiting and self.link.reading and not self.link.closed:
            self.connection.feed(self.waiting.popleft())
            self.world.run()

    def hang_up(self) -> None:
        self.connection.lost()
        self.world.run()


class FakeBroker:
    """A node with the vhost / and the user guest; further vhosts and users are the test's to make."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.world = FakeWorld()
        self.buffer = ReadBuffer()
        self.node = Node(self.world, limits or Limits(), exchange_types(), "test")
        self.node.events.subscribe(Failure, lambda failure: self.world.report(failure.error))
        self.node.execute(commands.AddVhost(name="/"))
        self.node.execute(commands.PutUser(name="guest", password=quick_hash(b"guest")))
        everything = Permissions(".*", ".*", ".*")
        self.node.execute(commands.SetPermissions(user="guest", vhost="/", permissions=everything))

    def connect(self, name: str = "test") -> FakePeer:
        return FakePeer(self, name)

    def stop(self) -> None:
        """All connections and queues go, so that nothing is left that refers to the node."""
        for connection in list(self.node.connections):
            connection.lost()
        for vhost in self.node.vhosts.values():
            for queue in list(vhost.queues.values()):
                vhost.remove_queue(queue)
        self.world.run()

    def check_liveness(self) -> None:
        """What the server does twice a second."""
        for connection in list(self.node.connections):
            connection.liveness.check(connection, self.world.now())
        self.node.end_turn()
        self.world.run()


def quick_hash(password: bytes) -> PasswordHash:
    """A hash that takes no time, since the tests of this broker make thousands of connections."""
    salt = b"salt"
    raw = salt + hashlib.sha256(salt + password).digest()
    return PasswordHash("rabbit_password_hashing_sha256", base64.b64encode(raw).decode())
