"""A fixed piece of a broker's life, with all that its storage does, and what the clients were promised in it.

Queues are declared, bound, filled by one and by several at once, until segments are full and memory too;
messages are consumed, acked, returned, got and purged; queues are deleted and declared again. Each step ends
when all is done, however often the disk fails meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from tests.support.fake_client import FakeClient
from tests.support.frames import method_frame, published
from tests.support.machine import Machine
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties

TRIES_MAX = 20
SIZES = (0, 40, 700, 5_000)


class State(Enum):
    """Of a queue, as far as the client was told."""

    ASKED_FOR = auto()
    THERE = auto()
    DELETING = auto()
    GONE = auto()


class Scenario:
    """`sent` are the persistent messages to each queue since it was last declared, by their bodies; `done` is
    what a client has acked, or the broker was asked to purge; `confirmed` is what has to be there.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.states: dict[str, State] = {}
        self.sent: dict[str, list[bytes]] = {}
        self.published: list[bytes] = []
        self.confirmed: set[bytes] = set()
        self.confirmed_count = 0
        self.done: set[bytes] = set()
        self.blocked = self.was_alarmed = self.was_failing = False
        self.numbers = 0
        self.answers: list[m.Method] = []

    @property
    def steps(self) -> list[Callable[[], None]]:
        return [
            self.connect,
            lambda: self.declare("orders", "invoices", "letters"),
            lambda: self.publish(["orders"] * 4),
            lambda: self.publish(["orders", "invoices", "letters"]),
            self.publish_to_all,
            lambda: self.consume("orders", count=5),
            lambda: self.commit(["orders", "invoices"]),
            lambda: self.get("invoices", ack=True),
            lambda: self.get("invoices", ack=False),
            lambda: self.delete("letters"),
            lambda: self.publish(["orders", "invoices"] * 5),
            lambda: self.declare_and_delete("drafts", times=6),
            lambda: self.declare("letters"),
            lambda: self.publish(["letters"] * 3),
            lambda: self.publish(["letters"] * 6, persistent=False),
            lambda: self.purge("invoices"),
            lambda: self.consume("orders", count=100),
            self.publish_to_all,
            lambda: self.delete("orders"),
            self.tidy,
        ]

    def run(self) -> None:
        for step in self.steps:
            step()
        assert self.confirmed_count == len(self.published), "all is confirmed in the end"
        assert not self.blocked
        assert not self.machine.world.errors, self.machine.world.errors

    # --- going on ---

    def go_on(self) -> None:
        """Until all is done that was asked for, and the disk works."""
        machine = self.machine
        for _ in range(TRIES_MAX):
            machine.run()
            self.look()
            machine.housekeeping.run()
            if machine.store.commit.is_idle and not machine.node.alarms and not self.blocked:
                return
            machine.pass_time()
            self.look()
        raise AssertionError("it does not go on")

    def look(self) -> None:
        """Take in what the broker said."""
        for method in self.client.methods(0, 1):
            if isinstance(method, m.BasicAck):
                self.confirmed |= set(self.published[self.confirmed_count : method.delivery_tag])
                self.confirmed_count = method.delivery_tag
                self.check_confirmed_is_safe()
            elif isinstance(method, m.ConnectionBlocked | m.ConnectionUnblocked):
                self.blocked = isinstance(method, m.ConnectionBlocked)
            else:
                self.answers.append(method)
        self.was_alarmed |= "disk" in self.machine.node.alarms
        self.was_failing |= self.machine.store.is_failing

    def check_confirmed_is_safe(self) -> None:
        for name, state in self.states.items():
            if state is State.THERE:
                must = {body for body in self.sent[name] if body in self.confirmed - self.done}
                safe = {message.body for message in self.machine.safe_messages(name)}
                assert must <= safe, f"confirmed, but not safe in {name}"

    def ask(self, method: m.Method) -> m.Method:
        """Send, and go on until it is answered."""
        self.client.send(method)
        self.go_on()
        (answer,) = self.answers
        self.answers.clear()
        return answer

    # --- steps ---

    def connect(self) -> None:
        self.client: FakeClient = self.machine.connect(confirming=True)
        self.go_on()

    def declare(self, *names: str) -> None:
        for name in names:
            self.states[name] = State.ASKED_FOR
            self.sent[name] = []
            self.ask(m.QueueDeclare(queue=name, durable=True, arguments={}))
            self.states[name] = State.THERE
            self.ask(m.QueueBind(queue=name, exchange="amq.fanout", arguments={}))

    def publish(self, names: Iterable[str], *, persistent: bool = True) -> None:
        """In one turn."""
        data = [self.message("", name, [name], persistent=persistent) for name in names]
        self.client.connection.feed(b"".join(data))
        self.go_on()

    def publish_to_all(self) -> None:
        there = [name for name, state in self.states.items() if state is State.THERE]
        self.client.connection.feed(self.message("amq.fanout", "", there))
        self.go_on()

    def commit(self, names: Iterable[str]) -> None:
        """In a transaction; what commit-ok promises is the same as what a confirm does."""
        client = self.machine.connect()
        client.call(m.TxSelect(), m.TxSelectOk)
        before = len(self.published)
        client.connection.feed(b"".join([self.message("", name, [name]) for name in names]))
        client.send(m.TxCommit())
        bodies, self.published[before:] = self.published[before:], []
        self.go_on()
        (answer,) = client.methods()
        assert isinstance(answer, m.TxCommitOk)
        self.confirmed |= set(bodies)
        self.check_confirmed_is_safe()

    def message(self, exchange: str, key: str, names: Iterable[str], *, persistent: bool = True) -> bytes:
        self.numbers += 1
        body = f"{self.numbers} ".encode().ljust(SIZES[self.numbers % len(SIZES)], b".")
        self.published.append(body)
        if persistent:
            for name in names:
                self.sent[name].append(body)
        return published(exchange, key, body, BasicProperties(delivery_mode=PERSISTENT if persistent else 1))

    def consume(self, name: str, *, count: int) -> None:
        """Take at most so many, ack all but the last, return that, and end."""
        consumer = self.machine.connect()
        consumer.send(m.BasicQos(prefetch_count=count))
        consumer.consume(name)
        self.go_on()
        bodies = consumer.bodies()
        self.done |= set(bodies[:-1])
        acks = [method_frame(1, m.BasicAck(delivery_tag=tag)) for tag in range(1, len(bodies))]
        consumer.connection.feed(b"".join(acks))
        consumer.hang_up()
        self.go_on()

    def get(self, name: str, *, ack: bool) -> None:
        getter = self.machine.connect()
        getter.send(m.BasicGet(queue=name))
        (body,) = getter.bodies()
        if ack:
            self.done.add(body)
            getter.send(m.BasicAck(delivery_tag=1))
        else:
            getter.send(m.BasicNack(delivery_tag=1, requeue=True))
        self.go_on()

    def purge(self, name: str) -> None:
        self.done |= set(self.sent[name])
        self.ask(m.QueuePurge(queue=name))

    def delete(self, name: str) -> None:
        self.states[name] = State.DELETING
        self.ask(m.QueueDelete(queue=name))
        self.states[name] = State.GONE

    def declare_and_delete(self, name: str, *, times: int) -> None:
        """In one turn, so that most of the definitions are dead and are written anew."""
        self.states[name], self.sent[name] = State.DELETING, []
        declare = m.QueueDeclare(queue=name, durable=True, arguments={}, no_wait=True)
        both = method_frame(1, declare) + method_frame(1, m.QueueDelete(queue=name, no_wait=True))
        self.client.connection.feed(both * times)
        self.go_on()
        self.states[name] = State.GONE

    def tidy(self) -> None:
        self.machine.store.tidy()
        self.go_on()

    # --- what is left ---

    def check_left(self, left: Machine, *, power_lost: bool) -> None:
        """A broker that was started on what a crash left has all that was promised, and nothing else."""
        for name, state in self.states.items():
            assert name in left.queues or state is not State.THERE, f"{name} is gone"
            assert name not in left.queues or state is not State.GONE, f"{name} came back"
        for name in left.queues:
            self.check_messages(left, name, power_lost=power_lost)

    def check_messages(self, left: Machine, name: str, *, power_lost: bool) -> None:
        queue, bodies = left.queues[name], []
        count = queue.message_count
        while (entry := queue.get(no_ack=False)) is not None:
            bodies.append(entry.message.body)
            assert entry.delivery_count or not power_lost, "it may have been delivered before"
        assert count == len(bodies), "what it says it has, it has"
        assert bodies == [body for body in self.sent[name] if body in set(bodies)], "once each, in order"
        if self.states[name] is State.THERE:
            must = [body for body in self.sent[name] if body in self.confirmed - self.done]
            lost = [body[:20] for body in must if body not in bodies]
            assert not lost, f"lost from {name}: {lost}"
