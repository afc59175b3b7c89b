"""One node of a broker: all its state, and what it asks of the world around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeVar

from warren.amqp.budget import Budget
from warren.amqp.errors import AmqpError, NotImplementedByBroker
from warren.amqp.writer import Output
from warren.broker.access import User
from warren.broker.changes import Applied, carry_out, check, completed
from warren.broker.client import Client, ClientId
from warren.broker.clock import Clock
from warren.broker.commands import COMMAND_WORK, NOT_KEPT, Command, DeclareQueue
from warren.broker.dead_letters import DeadLetters, Handover
from warren.broker.declarations import check_recorded
from warren.broker.events import AlarmCleared, AlarmRaised, Events
from warren.broker.exchange.exchange import Router
from warren.broker.login import InternalUsers, Logins
from warren.broker.login_attempts import LoginAttempts
from warren.broker.memory import Memory
from warren.broker.parameters import Parameters
from warren.broker.passwords import VerifiedPasswords
from warren.broker.post import Post, Postbox
from warren.broker.rota import Drainable
from warren.broker.store import Store
from warren.broker.surroundings import Surroundings
from warren.broker.tally import VhostTally
from warren.broker.throttle import Throttle
from warren.broker.timers import Timers
from warren.broker.timetable import Timetable
from warren.broker.turns import Turns
from warren.broker.vhost import Vhost

T = TypeVar("T")
MEMORY = "memory"
CLOSE_WORK = 50  # units of work for a connection: what ends with it, and a write to its socket


class World(Timers, Protocol):
    """What the model needs from outside: time, chance, threads for slow work, and a place to report errors
    that are our own fault.

    `in_thread` runs `work` in a thread, and then calls `done` with the result on the event loop. If `work`
    raises, it reports the error and calls `failed` with it.
    """

    def time_ms(self) -> int: ...
    def random_bytes(self, count: int) -> bytes: ...
    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None: ...
    def report(self, error: Exception) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a node. The first three are offered to clients when they connect."""

    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_seconds: int = 60
    message_bytes_max: int = 128 * 1024 * 1024
    transaction_messages_max: int = 1_000_000  # published in one transaction
    transaction_bytes_max: int = 1024 * 1024 * 1024
    memory_budget_bytes: int = 1024 * 1024 * 1024  # for messages packed behind the ready entries of queues
    ready_budget_bytes: int = 256 * 1024 * 1024  # for ready entries, beyond the few that are free
    consumer_timeout_ms: int = 1_800_000  # for an ack, in queues without a limit of their own
    connections_max: int | None = None
    loopback_users: frozenset[str] = frozenset({"guest"})  # who may connect from this machine only
    login_failures_free: int = 10  # failed logins of an address or a user, before the next ones have to wait
    login_delay_seconds_max: float = 60.0  # for how long; 0: nobody has to wait


class Proposer(Protocol):
    """Changes definitions in agreement with the other nodes of a cluster."""

    def propose(self, command: Command, then: Callable[[Applied], None] | None) -> None:
        """Have the change made on all nodes, and call `then` with the result once this one has it. None, if
        the model itself asks: the change is made as soon as that is possible.
        """
        ...

    def catch_up(self, then: Callable[[AmqpError | None], None]) -> None:
        """Call back once this node has all changes that were made anywhere before; or, with the reason, when
        that could not be found out in time.
        """
        ...

    def where_is(self, node: str) -> str:
        """A node of the cluster, with its address, for a user; empty if a queue is on none now."""
        ...


class Node:
    """All state of one node. `change` and `execute` are the only ways to change its definitions."""

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
        self.exchange_types = exchange_types  # the class that routes for each type of exchange
        self.name = cluster_name  # of the node: it stays when the cluster is renamed
        self.cluster_name = cluster_name
        self.store = store or Store()  # without a data directory, one that keeps nothing
        self.safety = self.store.safety  # says when definitions are safe
        self.clock = Clock(world.time_ms)  # the time of day
        self.turns = Turns(world, Budget(), self.end_turn, world.report)  # shares out the event loop's time
        self.store.charge(self.turns.budget)
        self.memory = Memory(limits.memory_budget_bytes, limits.ready_budget_bytes, self.turns.later)
        self.timetable = Timetable(world, self.clock, self.turns, world.report)  # appointments of all queues
        self.handover = Handover(self.turns)  # dead letters that are not safe yet in their new queue
        self.events = Events(world.report)
        self.vhosts: dict[str, Vhost] = {}
        self.gone = VhostTally()  # counts of vhosts that are deleted, and of closed connections
        self.users: dict[str, User] = {}
        self.parameters = Parameters()  # what components keep here
        self.attempts = LoginAttempts()
        self.passwords = VerifiedPasswords(world.random_bytes(32), world)
        self.logins = Logins(  # who is let in, over AMQP and HTTP
            InternalUsers(self.users, self.passwords, limits.loopback_users),
            Throttle(world, limits.login_failures_free, limits.login_delay_seconds_max),
            self.attempts,
            self.events,
        )
        self.clients: dict[ClientId, Client] = {}  # the open connections
        self.client_ids = count(1)  # ids for new connections
        self.on_last_client: Callable[[], None] | None = None  # called when no connection is left
        self.touched_queues: list[Drainable] = []  # to be drained in this turn
        self.before_draining: Callable[[], None] | None = None  # called then, in a cluster
        self.dirty_outputs: list[Output] = []  # to be sent in this turn
        self.alarms: set[str] = set()  # the resources that are short, such as "memory"
        self.checking_consumers = False  # whether `check_consumers` has begun and has not ended
        self.changes: deque[tuple[Command, Callable[[Applied], None] | None]] = deque()  # not begun yet
        self.is_changing = False  # whether a change is being carried out
        self.proposer: Proposer | None = None  # makes changes, in a cluster
        self.post: Post | None = None  # takes messages to queues of other nodes, in a cluster

    # --- changes ---

    def change(self, command: Command, then: Callable[[Applied], None] | None = None) -> None:
        """Check and carry out a change of the definitions, and call `then` with the result: in a node that is
        alone, before this returns. A durable change is safe on disk when `store.safety` says so.

        A change that is asked for during another change is carried out after it.

        In a cluster the change is made on all nodes, and `then` is called later.
        """
        if self.proposer is not None and type(command) not in NOT_KEPT:
            self.proposer.propose(command, then)
            return
        self.changes.append((command, then))
        if self.is_changing:
            return
        self.is_changing = True
        try:
            while self.changes:
                self._change(*self.changes.popleft())
        finally:
            self.is_changing = False

    def _change(self, command: Command, then: Callable[[Applied], None] | None) -> None:
        try:
            command = completed(self, command)
            check(self, command)
            applied = self._carry_out(command)
        except AmqpError as error:
            applied = Applied(changed=False, error=error)
        if then is not None:
            then(applied)
        elif applied.error is not None:
            self.world.report(applied.error)

    def _carry_out(self, command: Command) -> Applied:
        """Carry out a command, record it if it changed anything, and carry out its follow-ups unchecked."""
        self.turns.budget.left -= COMMAND_WORK
        applied = carry_out(self, command)
        if applied.changed and type(command) not in NOT_KEPT:
            self.store.record(command)
            if type(command) is DeclareQueue:
                applied.made.open(self.store)
        for follow_up in applied.follow_up:
            self._carry_out(follow_up)
        return applied

    def execute(self, command: Command) -> Applied:
        """Carry out a change now, or raise the reason why it cannot be made: for programs that embed the
        broker, and for tests. A subscriber to events may call this while another change is carried out. In a
        cluster no change is made at once: use `change`.
        """
        if self.proposer is not None and type(command) not in NOT_KEPT:
            raise NotImplementedByBroker("a change at once, in a cluster: ask for it with `change`")
        if self.is_changing:
            command = completed(self, command)
            check(self, command)
            return self._carry_out(command)
        answers: list[Applied] = []
        self.change(command, answers.append)
        [applied] = answers
        if applied.error is not None:
            raise applied.error
        return applied

    def apply(self, command: Command, number: int = 0, store: Store | None = None) -> Applied:
        """Carry out what the cluster has agreed on. A durable queue that lives here gets this number.
        Follow-ups are commands of their own. `store` is for a queue of a shard that this node leads: it
        opens the queue's logs, and the node's own store does not know of the queue.
        """
        self.turns.budget.left -= COMMAND_WORK
        applied = carry_out(self, command)
        if applied.changed and not (type(command) is DeclareQueue and command.home):
            if store is None:
                self.store.record(command, number)
            if type(command) is DeclareQueue:
                applied.made.open(store or self.store)
        return applied

    def where_is(self, node: str) -> str:
        return f"node '{node}'" if self.proposer is None else self.proposer.where_is(node)

    def postbox(self, vhost: str, queue: str) -> Postbox | None:
        return None if self.post is None else self.post.box_for(vhost, queue)

    def post_is_full(self) -> bool:
        return self.post is not None and self.post.is_full

    def restore(self, commands: Iterable[Command]) -> None:
        """Carry out the commands that earlier runs recorded; then have every durable queue open its log."""
        follow_ups: list[Command] = []
        for command in commands:
            try:
                follow_ups += carry_out(self, command).follow_up
                if type(command) is DeclareQueue and command.arguments:
                    check_recorded(command)
            except AmqpError as error:  # an argument makes no sense any more, or an exchange type is missing
                self.world.report(error)
        for command in follow_ups:  # were recorded as well, unless the broker ended in between
            self._carry_out(command)
        for vhost in self.vhosts.values():
            for queue in vhost.all_queues():
                queue.open(self.store)
        self.world.call_soon(self.end_turn)  # some messages may have expired meanwhile

    # --- a turn ---

    def drain(self) -> None:
        """Deliver from every queue that was touched. When the turn's budget is used up, the remaining queues,
        and those that have more to deliver, are drained in the next turn. `warren perf throughput` and
        `benchmarks/flood.py` watch this.
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
        except Exception as error:  # noqa: BLE001 - a queue that fails must not stop the others
            self.world.report(error)

    def end_turn(self) -> None:
        """Deliver what can be delivered, and send all output. Marks are written before: a client must never
        know more than the disk's page cache.
        """
        if self.touched_queues:
            if self.before_draining is not None:
                self.before_draining()
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
        except Exception as error:  # noqa: BLE001 - an output that fails must not keep the others unsent
            self.world.report(error)

    def surroundings_of(self, vhost: Vhost) -> Surroundings:
        """What the queues of a vhost share."""
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
            expire=vhost.expire_queue,
            trace_delivered=vhost.trace_delivered,
            where_is=self.where_is,
            postbox=self.postbox,
            post_is_full=self.post_is_full,
            tally=vhost.tally,
        )

    # --- clients ---

    def new_client_id(self) -> ClientId:
        return ClientId(next(self.client_ids))

    def client_began(self, client: Client) -> None:
        self.clients[client.id] = client

    def when_last_client_ends(self, callback: Callable[[], None]) -> None:
        """Call back when no connection is left; now, if there is none."""
        self.on_last_client = callback
        if not self.clients:
            callback()

    def client_ended(self, client: Client) -> None:
        self.clients.pop(client.id, None)
        if not self.clients and self.on_last_client is not None:
            self.on_last_client()

    def check_consumers(self) -> None:
        """Close channels that have not acknowledged a delivery for too long. A timer calls this."""
        if not self.checking_consumers:
            self.checking_consumers = True
            self.turns.spread(self._checking_consumers())

    def _checking_consumers(self) -> Iterator[int]:
        now_ms = self.clock.refresh()
        try:
            for client in list(self.clients.values()):
                yield from client.close_late_channels(now_ms, self.limits.consumer_timeout_ms)
        finally:
            self.checking_consumers = False

    def permissions_changed(self, user: str, vhost: str) -> None:
        for client in self.clients.values():
            if client.user_name == user and client.vhost_name == vhost:
                client.forget_permissions()
        if vhost in self.vhosts:
            self.vhosts[vhost].version.bump()

    def rates_changed(self, user: User) -> None:
        for client in list(self.clients.values()):
            client.rates_changed(user)

    def close_connections_of(self, user: str, reason: str) -> None:
        self._close([client for client in self.clients.values() if client.user_name == user], reason)

    def close_connections_to(self, vhost: str, reason: str, then: Callable[[], None]) -> None:
        """Call `then` when all of them are closed, perhaps some turns later."""
        self._close([client for client in self.clients.values() if client.vhost_name == vhost], reason, then)

    def _close(self, clients: list[Client], reason: str, then: Callable[[], None] | None = None) -> None:
        for client in clients:
            client.stop_listening()
        self.turns.spread(_closing(clients, reason), then)

    # --- alarms ---

    def raise_alarm(self, resource: str, counted: dict[str, int] | None = None) -> None:
        """Block publishers from now on. `counted` says what memory is used for, in bytes by kind."""
        if resource not in self.alarms:
            self.alarms.add(resource)
            if resource == MEMORY:
                self.memory.call_in()
            self.events.emit(AlarmRaised(resource, counted or {}))
            for client in self.clients.values():
                client.alarm_changed()
            self.end_turn()

    def clear_alarm(self, resource: str, counted: dict[str, int] | None = None) -> None:
        if resource in self.alarms:
            self.alarms.discard(resource)
            self.events.emit(AlarmCleared(resource, counted or {}))
            for client in self.clients.values():
                client.alarm_changed()
            self.end_turn()

    def __repr__(self) -> str:
        return f"<Node of cluster {self.cluster_name!r}>"


def _closing(clients: list[Client], reason: str) -> Iterator[int]:
    for client in clients:
        client.force_close(reason)
        yield CLOSE_WORK
