"""A `World` for tests, whose time moves only when the test says so, and a broker in it."""

from __future__ import annotations

import base64
import hashlib
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from tests.support.fake_client import FakeClient
from warren.amqp.reader import ReadBuffer
from warren.broker import commands
from warren.broker.access import Permissions
from warren.broker.events import Failure
from warren.broker.exchange.types import exchange_types
from warren.broker.node import Limits, Node
from warren.broker.passwords import PasswordHash
from warren.broker.vhost import Vhost
from warren.server.app import CHECK_SECONDS
from warren.session.connection import connections_of

T = TypeVar("T")

EXCHANGE_TYPES = exchange_types()
EVERYTHING = Permissions(".*", ".*", ".*")
SALT = b"salt"
LATE_SECONDS = 1e-6


class FakeTimer:
    def __init__(self, later: list[tuple[float, int, Callable[[], None]]], number: int) -> None:
        self.later = later
        self.number = number

    def cancel(self) -> None:
        self.later[:] = [timer for timer in self.later if timer[1] != self.number]
        heapq.heapify(self.later)


class FakeWorld:
    """Nothing happens by itself: `turn`, `run_threads`, `run` and `advance` make it happen."""

    def __init__(self) -> None:
        self.time = 1_000.0  # the monotonic clock, in seconds
        self.ahead_ms = 0  # by how much a test has set the wall clock forward (or back)
        self.soon: deque[Callable[[], None]] = deque()  # for the next turn
        self.later: list[tuple[float, int, Callable[[], None]]] = []  # timers, a heap by time
        self.threads: deque[Callable[[], None]] = deque()  # work for threads, done by `run_threads`
        self.errors: list[Exception] = []  # what the broker reported as its own mistakes
        self.numbers = count(1)
        self.broken: Exception | None = None  # raised when random bytes are asked for: a mistake of our own

    def now(self) -> float:
        return self.time

    def time_ms(self) -> int:
        return int(self.time * 1000) + self.ahead_ms

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        number = next(self.numbers)
        heapq.heappush(self.later, (self.time + seconds, number, callback))
        return FakeTimer(self.later, number)

    def random_bytes(self, count: int) -> bytes:
        """Never the same bytes twice, but the same in every run of the test."""
        if self.broken is not None:
            raise self.broken
        return next(self.numbers).to_bytes(count)

    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - any error is passed to the caller's `failed`
                self.report(error)
                failed(error)
            else:
                done(result)

        self.threads.append(run)

    def report(self, error: Exception) -> None:
        self.errors.append(error)

    def turn(self) -> None:
        """One turn of the event loop: call what was due when the turn began."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def run_threads(self) -> None:
        while self.threads:
            self.threads.popleft()()

    def run(self) -> None:
        """Call all that is due now, and all that this makes due."""
        while self.soon or self.threads:
            self.run_threads()
            self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, and call the timers that become due: a moment late, as event loops do."""
        end = self.time + seconds + LATE_SECONDS
        while self.later and self.later[0][0] + LATE_SECONDS <= end:
            due, _, callback = heapq.heappop(self.later)
            self.time = due + LATE_SECONDS
            callback()
        self.time = end


def quick_hash(password: str) -> PasswordHash:
    """A password hash that is quick to verify."""
    digest = hashlib.sha256(SALT + password.encode()).digest()
    return PasswordHash("rabbit_password_hashing_sha256", base64.b64encode(SALT + digest).decode())


def make_node(world: FakeWorld, limits: Limits | None = None) -> Node:
    """A node with the vhost `/` and the user guest, who may do everything there."""
    node = Node(world, limits or Limits(), EXCHANGE_TYPES, "test")
    node.execute(commands.AddVhost(name="/"))
    add_user(node, "guest")
    return node


def add_user(node: Node, name: str, permissions: Permissions = EVERYTHING) -> None:
    """Add a user whose password is the name."""
    node.execute(commands.PutUser(name=name, password=quick_hash(name)))
    node.execute(commands.SetPermissions(user=name, vhost="/", permissions=permissions))


def check_clients(node: Node, world: FakeWorld) -> None:
    """What the server does every `CHECK_SECONDS`: check heartbeats, and how long consumers hold messages."""
    for connection in connections_of(node):
        connection.liveness.check(connection, world.now())
    node.check_consumers()
    node.end_turn()


class FakeBroker:
    """A node and its world. What the node reports as its own mistake is in the world's `errors`."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.world = FakeWorld()
        self.buffer = ReadBuffer()
        self.node = make_node(self.world, limits)
        self.node.events.subscribe(Failure, lambda failure: self.world.report(failure.error))

    @property
    def vhost(self) -> Vhost:
        return self.node.vhosts["/"]

    def connect(self, name: str = "client") -> FakeClient:
        return FakeClient(self.node, name=name, buffer=self.buffer)

    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.world.run()

    def pass_time(self, seconds: float) -> None:
        """Let time pass in steps of `CHECK_SECONDS`, with the server's checks after each."""
        for _ in range(round(seconds / CHECK_SECONDS)):
            self.advance(CHECK_SECONDS)
            check_clients(self.node, self.world)
            self.world.run()

    def stop(self) -> None:
        """End all connections and queues, so that nothing refers to the node any more."""
        for connection in connections_of(self.node):
            connection.lost()
        for vhost in self.node.vhosts.values():
            for queue in vhost.all_queues():
                vhost.remove_queue(queue)
        self.world.run()
