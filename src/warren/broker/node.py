"""One node of a broker: all its state, and what it asks of the world around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from warren.amqp.budget import Budget
from warren.amqp.errors import AmqpError, CommandInvalid, PreconditionFailed
from warren.amqp.writer import Output
from warren.broker.access import User
from warren.broker.clock import Clock
from warren.broker.commands import (
    COMMAND_WORK,
    ClearPermissions,
    ClearTopicPermissions,
    Command,
    DeclareExchange,
    DeclareQueue,
    SetTracing,
    apply,
)
from warren.broker.dead_letters import DeadLetters, Handover
from warren.broker.events import AlarmCleared, AlarmRaised, Events, VhostCreated, VhostDeleted
from warren.broker.exchange.delayed import Delayed
from warren.broker.exchange.exchange import Exchange, Router
from warren.broker.flow import Timers
from warren.broker.internal_queue import make_internal_queue
from warren.broker.lane import part_of
from warren.broker.memory import Memory
from warren.broker.passwords import VerifiedPasswords
from warren.broker.queue import Queue
from warren.broker.rota import Drainable
from warren.broker.rules import STREAM, queue_type
from warren.broker.session.consumer_timeout import check_timeout
from warren.broker.store import Store
from warren.broker.stream import Stream
from warren.broker.surroundings import Surroundings
from warren.broker.timetable import Timetable
from warren.broker.turns import Turns
from warren.broker.vhost import INTERNAL, PREDECLARED, Vhost, default_exchange

if TYPE_CHECKING:
    from warren.broker.session.connection import Connection

T = TypeVar("T")
MEMORY = "memory"


class World(Timers, Protocol):
    """What the model needs from outside: time, chance, a thread for what takes long, and a place for
    errors that are nobody's fault but ours. Work in a thread ends with a call of `done` or, when what it
    raised is reported, of `failed`.
    """

    def time_ms(self) -> int: ...
    def random_bytes(self, count: int) -> bytes: ...
    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None: ...
    def report(self, error: Exception) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is offered to clients, and what they are held to."""

    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_seconds: int = 60
    message_bytes_max: int = 128 * 1024 * 1024
    transaction_messages_max: int = 1_000_000
    transaction_bytes_max: int = 1024 * 1024 * 1024
    memory_budget_bytes: int = 1024 * 1024 * 1024
    ready_budget_bytes: int = 256 * 1024 * 1024
    consumer_timeout_ms: int = 1_800_000
    connections_max: int | None = None
    loopback_users: frozenset[str] = frozenset({"guest"})


class Node:
    """`touched_queues` and `dirty_outputs` are what this turn has to finish."""

    def __init__(
        self,
        world: World,
        limits: Limits,
        exchange_types: Mapping[str, type[Router]],
        cluster_name: str,
        store: Store | None = None,
    ) -> None:
        self.world = world
        self.limits = limits
        self.exchange_types = exchange_types
        self.cluster_name = cluster_name
        self.store = store or Store()
        self.clock = Clock(world.time_ms)
        self.turns = Turns(world, Budget(), self.end_turn, world.report)
        self.memory = Memory(limits.memory_budget_bytes, limits.ready_budget_bytes, self.turns.later)
        self.timetable = Timetable(world, self.clock, self.turns, world.report)
        self.handover = Handover(self.store)
        self.events = Events(world.report)
        self.vhosts: dict[str, Vhost] = {}
        self.users: dict[str, User] = {}
        self.passwords = VerifiedPasswords(world.random_bytes(32), world)
        self.connections: set[Connection] = set()
        self.on_last_connection: Callable[[], None] | None = None
        self.touched_queues: list[Drainable] = []
        self.dirty_outputs: list[Output] = []
        self.alarms: set[str] = set()

    def execute(self, command: Command) -> None:
        """Change the definitions; durable ones on disk too, for which `store.when_safe` waits."""
        self.turns.budget.left -= COMMAND_WORK
        if apply(self, command):
            self.record(command)
            if isinstance(command, DeclareQueue):
                self._open_log(self.vhosts[command.vhost].queues[command.name])

    def record(self, command: Command) -> None:
        self.store.record(command)

    def restore(self, commands: Iterable[Command]) -> None:
        """Carry out what was recorded in the time before; then every durable queue finds its messages."""
        for command in commands:
            try:
                apply(self, command)
            except AmqpError as error:  # an exchange type, say, whose package is not installed any more
                self.world.report(error)
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                self._open_log(queue)
        self.world.call_soon(self.end_turn)  # some of it may have expired meanwhile

    def _open_log(self, queue: Queue) -> None:
        if isinstance(queue, Stream):
            if queue.log is None:
                queue.open(*self.store.open_stream(queue.vhost, queue.name))
            return
        if not queue.durable or queue.owner is not None or queue.lane.log is not None:
            return
        for lane in queue.lanes:
            opened = self.store.open_log(queue.vhost, queue.name, part_of(lane.level))
            if opened is not None:
                queue.restore(*opened, lane.level)
        if queue.book is not None and queue.book.seen is not None:
            opened = self.store.open_log(queue.vhost, queue.name, "seen")
            if opened is not None:
                queue.book.seen.restore(*opened, self.store.when_safe, queue.lanes)

    # --- a turn ---

    def drain(self) -> None:
        """Deliver from every queue that was touched. If that is too much for a turn, the last of them, and
        those that have more to do, are drained in the next.
        """
        turns = self.turns
        budget = turns.budget
        turns.begin_draining()
        while self.touched_queues and budget.draining > 0:
            queues = self.touched_queues[:]
            self.touched_queues.clear()
            drained = 0
            while drained < len(queues) and budget.draining > 0:
                left = budget.left
                self._drain_one(queues[drained])
                drained += 1
                budget.draining -= max(left - budget.left, 0)
            self.touched_queues[:0] = queues[drained:]
        turns.end_draining()

    def _drain_one(self, queue: Drainable) -> None:
        try:
            queue.drain()
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from their turn
            self.world.report(error)

    def end_turn(self) -> None:
        """Deliver what can be delivered, and send what there is to send."""
        if self.touched_queues:
            self.drain()
        self.store.write_marks()
        if self.dirty_outputs:
            outputs = self.dirty_outputs[:]
            self.dirty_outputs.clear()
            for output in outputs:
                self._flush(output)

    def _flush(self, output: Output) -> None:
        try:
            if output.owner is not None:
                output.owner.flush()
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others unsent
            self.world.report(error)

    # --- making things ---

    def add_vhost(self, name: str) -> None:
        vhost = Vhost(name, self.events, self.record)
        vhost.surroundings = self._surroundings(vhost)
        vhost.add_exchange(default_exchange())
        for exchange, kind in PREDECLARED.items():
            wanted = DeclareExchange(vhost=name, name=exchange, type=kind, internal=exchange in INTERNAL)
            vhost.add_exchange(self.make_exchange(wanted))
        self.vhosts[name] = vhost
        self.events.emit(VhostCreated(name))

    def remove_vhost(self, vhost: Vhost) -> None:
        """With all that is in it, and the permissions there; who is connected to it is told."""
        for connection in list(self.connections):
            if connection.vhost_name == vhost.name:
                connection.force_close(f"vhost '{vhost.name}' is deleted")
        for user in self.users.values():
            self.execute(ClearPermissions(user=user.name, vhost=vhost.name))
            for name, exchange in list(user.topic_permissions):
                if name == vhost.name:
                    self.execute(ClearTopicPermissions(user=user.name, vhost=name, exchange=exchange))
        self.execute(SetTracing(vhost=vhost.name, on=False))
        vhost.end()
        del self.vhosts[vhost.name]
        self.events.emit(VhostDeleted(vhost.name))

    def _surroundings(self, vhost: Vhost) -> Surroundings:
        return Surroundings(
            events=self.events,
            touched_queues=self.touched_queues,
            timers=self.world,
            turns=self.turns,
            memory=self.memory,
            clock=self.clock,
            timetable=self.timetable,
            dead_letters=DeadLetters(vhost, self.clock, self.events, self.handover),
            open_overflow=self.store.open_overflow,
            when_safe=self.store.when_safe,
            expire=vhost.expire_queue,
        )

    def make_exchange(self, wanted: DeclareExchange) -> Exchange:
        return Exchange(
            wanted.name,
            wanted.type,
            self._make_router(wanted),
            durable=wanted.durable,
            auto_delete=wanted.auto_delete,
            internal=wanted.internal,
            arguments=wanted.arguments,
        )

    def _make_router(self, wanted: DeclareExchange) -> Router:
        if wanted.type not in self.exchange_types:
            raise CommandInvalid(f"unknown exchange type '{wanted.type}'")
        router = self.exchange_types[wanted.type](wanted.arguments)
        if isinstance(router, Delayed):
            if router.inner_type not in self.exchange_types:
                raise PreconditionFailed(f"unknown exchange type '{router.inner_type}' in x-delayed-type")
            router.inner = self.exchange_types[router.inner_type](wanted.arguments)
            router.clock = self.clock
        return router

    def add_exchange(self, wanted: DeclareExchange) -> None:
        """With the queues that belong to it."""
        vhost = self.vhosts[wanted.vhost]
        exchange = self.make_exchange(wanted)
        vhost.add_exchange(exchange)
        for name in exchange.internal_queues():
            self.execute(DeclareQueue(vhost=vhost.name, name=name, durable=wanted.durable))

    def make_queue(self, wanted: DeclareQueue) -> Queue:
        vhost = self.vhosts[wanted.vhost]
        internal = make_internal_queue(vhost, wanted.name, durable=wanted.durable)
        if internal is not None:
            return internal
        kind = Queue
        if queue_type(wanted.arguments) == STREAM:
            if not self.store.keeps_streams:
                raise PreconditionFailed("a stream needs a broker with a data directory")
            kind = Stream
        return kind(
            wanted.name,
            wanted.vhost,
            vhost.surroundings,
            durable=wanted.durable,
            auto_delete=wanted.auto_delete,
            owner=wanted.owner,
            arguments=wanted.arguments,
        )

    # --- connections ---

    def when_last_connection_ends(self, callback: Callable[[], None]) -> None:
        self.on_last_connection = callback
        if not self.connections:
            callback()

    def connection_ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections and self.on_last_connection is not None:
            self.on_last_connection()

    def check_consumers(self) -> None:
        """From time to time: channels that have not acknowledged for too long are closed."""
        now_ms = self.clock.refresh()
        for connection in list(self.connections):
            for channel in connection.open_channels():
                check_timeout(channel, now_ms, self.limits.consumer_timeout_ms)

    # --- users and alarms ---

    def permissions_changed(self, user: str, vhost: str) -> None:
        for connection in self.connections:
            if connection.user_name == user and connection.vhost_name == vhost:
                connection.forget_permissions()
        if vhost in self.vhosts:
            self.vhosts[vhost].version.bump()

    def rates_changed(self, user: User) -> None:
        for connection in list(self.connections):
            connection.rates_changed(user)

    def close_connections_of(self, user: str, reason: str) -> None:
        for connection in list(self.connections):
            if connection.user_name == user:
                connection.force_close(reason)

    def raise_alarm(self, resource: str, counted: dict[str, int] | None = None) -> None:
        """From now on, whoever publishes is blocked. `counted` is why, in bytes by kind."""
        if resource not in self.alarms:
            self.alarms.add(resource)
            if resource == MEMORY:
                self.memory.call_in()
            self.events.emit(AlarmRaised(resource, counted or {}))
            for connection in self.connections:
                connection.alarm_changed()
            self.end_turn()

    def clear_alarm(self, resource: str, counted: dict[str, int] | None = None) -> None:
        if resource in self.alarms:
            self.alarms.discard(resource)
            self.events.emit(AlarmCleared(resource, counted or {}))
            for connection in self.connections:
                connection.alarm_changed()
            self.end_turn()
