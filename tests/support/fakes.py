"""The world around the model, made by hand: time that moves when told, and a broker in the middle of it."""

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
from warren.broker.node import Limits, Node
from warren.broker.passwords import PasswordHash
from warren.broker.vhost import Vhost
from warren.server.app import CHECK_SECONDS, exchange_types
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
    """Nothing happens by itself: `turn`, `run_threads`, `run` and `advance` make it happen. The clock on the
    wall is `ahead_ms` of where it was at first, for whatever is not the passing of time.
    """

    def __init__(self) -> None:
        self.time = 1_000.0
        self.ahead_ms = 0
        self.soon: deque[Callable[[], None]] = deque()
        self.later: list[tuple[float, int, Callable[[], None]]] = []
        self.threads: deque[Callable[[], None]] = deque()
        self.errors: list[Exception] = []
        self.numbers = count(1)
        self.broken: Exception | None = None  # what asking for random bytes raises: a fault of our own

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
        """Never the same twice, and the same in every run."""
        if self.broken is not None:
            raise self.broken
        return next(self.numbers).to_bytes(count)

    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits is told
                self.report(error)
                failed(error)
            else:
                done(result)

        self.threads.append(run)

    def report(self, error: Exception) -> None:
        self.errors.append(error)

    def turn(self) -> None:
        """One turn of the event loop: what was due when it began."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def run_threads(self) -> None:
        while self.threads:
            self.threads.popleft()()

    def run(self) -> None:
        """All that is due now, and what follows from it."""
        while self.soon or self.threads:
            self.run_threads()
            self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, and call back what becomes due: a moment late, as event loops do."""
        end = self.time + seconds + LATE_SECONDS
        while self.later and self.later[0][0] + LATE_SECONDS <= end:
            due, _, callback = heapq.heappop(self.later)
            self.time = due + LATE_SECONDS
            callback()
        self.time = end


def quick_hash(password: str) -> PasswordHash:
    """A hash that is verified in no time."""
    digest = hashlib.sha256(SALT + password.encode()).digest()
    return PasswordHash("rabbit_password_hashing_sha256", base64.b64encode(SALT + digest).decode())


def make_node(world: FakeWorld, limits: Limits | None = None) -> Node:
    """A node with the vhost `/` and the user guest, who may do everything there."""
    node = Node(world, limits or Limits(), EXCHANGE_TYPES, "test")
    node.execute(commands.AddVhost(name="/"))
    add_user(node, "guest")
    return node


def add_user(node: Node, name: str, permissions: Permissions = EVERYTHING) -> None:
    """The password is the name."""
    node.execute(commands.PutUser(name=name, password=quick_hash(name)))
    node.execute(commands.SetPermissions(user=name, vhost="/", permissions=permissions))


def check_clients(node: Node, world: FakeWorld) -> None:
    """What the server does every `CHECK_SECONDS`: who is alive, and who holds messages for too long."""
    for connection in connections_of(node):
        connection.liveness.check(connection, world.now())
    node.check_consumers()
    node.end_turn()


class FakeBroker:
    """A node with all that it needs. What it reports as its own mistake is in the world's `errors`."""

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
        """In the steps in which the server looks who is still alive."""
        for _ in range(round(seconds / CHECK_SECONDS)):
            self.advance(CHECK_SECONDS)
            check_clients(self.node, self.world)
            self.world.run()

    def stop(self) -> None:
        """All connections and queues go, so that nothing is left that refers to the node."""
        for connection in connections_of(self.node):
            connection.lost()
        for vhost in self.node.vhosts.values():
            for queue in vhost.all_queues():
                vhost.remove_queue(queue)
        self.world.run()
