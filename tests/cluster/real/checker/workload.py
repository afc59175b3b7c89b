"""Applications with several hosts: publishers that publish again what was not confirmed, consumers that ack,
and readers of streams. Each is a thread that looks for the node where its queue is.
"""

from __future__ import annotations

import re
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from tests.cluster.real.checker.client import OFFSET, PATIENCE_SECONDS, Arrived, Link, SilentNode
from tests.cluster.real.checker.history import Delivery, History, Outcome, Publish
from tests.support.process import Address
from warren.amqp.methods import BasicAck, BasicCancel, BasicNack, Method
from warren.amqp.table import Table
from warren.client.errors import ClientError

RETRY_SECONDS = 0.2
POLL_SECONDS = 0.05
IN_FLIGHT_MAX = 20
PREFETCH = 50
ACK_AT_LEAST = 10  # deliveries, or those of `ACK_SECONDS`
ACK_SECONDS = 0.1
FROM_BEGINNING = 0.2  # how often a reader reads all of a stream again
LATE_SECONDS_MAX = 0.5  # of publishes that were due and could not be sent
BODY_BYTES_MAX = 500
MADE: Table = {"x-queue-type": "quorum"}
LEADER = re.compile(r"is on node '([^']+)'")

Finder = Callable[[str], Address | None]
"""Where clients find a node, by its name; None if it has never listened."""


class Application(threading.Thread):
    """Does its work at whatever node has its queue, until it is over."""

    def __init__(self, name: str, queue: str, nodes: Sequence[str], find: Finder, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.queue = queue
        self.nodes = nodes
        self.find = find
        self.history = history
        self.rng = Random(name)
        self.is_over = threading.Event()
        self.wanted = self.rng.choice(nodes)  # the node to try next
        self.connections = 0
        self.failure: BaseException | None = None  # a mistake of ours, and not a fault of the cluster

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                self._connect()
        except BaseException as error:
            self.failure = error
            raise

    def _connect(self) -> None:
        node, self.wanted = self.wanted, self.rng.choice(self.nodes)
        address = self.find(node)
        if address is None:
            self.is_over.wait(RETRY_SECONDS)
            return
        try:
            link = Link(address, self.name)
        except ClientError:
            self.is_over.wait(RETRY_SECONDS)
            return
        self.connections += 1
        try:
            self.use(link, f"{self.name}.{self.connections}")
        except ClientError as error:
            self._hear(str(error), node)
        finally:
            link.close()

    def _hear(self, text: str, node: str) -> None:
        """A node that is not the leader says who is. That may be the node itself, if it has just begun."""
        leader = LEADER.search(text)
        if leader is not None and leader[1] in self.nodes:
            self.wanted = leader[1]
        if leader is None or leader[1] == node:
            self.is_over.wait(RETRY_SECONDS)

    @abstractmethod
    def use(self, link: Link, channel: str) -> None:
        """Work until it is over or the link is."""


class Publisher(Application):
    """Publishes numbered messages, and again those whose fate is not known: as a new message."""

    rate = 30.0  # messages a second
    priorities = 1

    def __init__(self, name: str, queue: str, nodes: Sequence[str], find: Finder, history: History) -> None:
        super().__init__(name, queue, nodes, find, history)
        self.number = 0  # of the next new message
        self.attempts: dict[int, int] = {}  # of messages that were sent and not confirmed, by number
        self.again: deque[int] = deque()  # numbers to be sent again, before all that is new
        self.flight: dict[int, tuple[int, Publish]] = {}  # what was not answered yet, by delivery tag
        self.confirmed = 0

    def use(self, link: Link, channel: str) -> None:
        link.confirm()
        tag, due, heard = 0, time.time(), time.time()
        try:
            while self.flight or not self.is_over.is_set():
                now = time.time()
                due = max(due, now - LATE_SECONDS_MAX)
                while due <= now and self._may_send(link):
                    tag += 1
                    due += 1 / self.rate
                    self._send(link, channel, tag)
                link.poll(POLL_SECONDS)
                heard = now if self._settle(link.take_methods()) or not self.flight else heard
                if now - heard > PATIENCE_SECONDS:
                    raise SilentNode("it does not confirm")
        finally:
            self._give_up()

    def _may_send(self, link: Link) -> bool:
        return not link.blocked and len(self.flight) < IN_FLIGHT_MAX and not self.is_over.is_set()

    def _send(self, link: Link, channel: str, tag: int) -> None:
        if self.again:
            number = self.again.popleft()
        else:
            number, self.number = self.number, self.number + 1
        attempt = self.attempts[number] = self.attempts.get(number, 0) + 1
        message = f"{self.name}:{number}:{attempt}"
        sent = Publish(message, self.queue, channel, time.time(), number % self.priorities)
        self.history.publishes.append(sent)
        self.flight[tag] = number, sent
        body = message.encode() + b" " + bytes(self.rng.randrange(BODY_BYTES_MAX))
        link.publish(self.queue, body, sent.priority)

    def _settle(self, methods: list[Method]) -> bool:
        """Whether the broker has answered for any message."""
        count = len(self.flight)
        for method in methods:
            if isinstance(method, BasicAck | BasicNack):
                is_confirmed = isinstance(method, BasicAck)
                tags = [method.delivery_tag]
                if method.multiple:
                    tags = [tag for tag in self.flight if tag <= method.delivery_tag]
                for tag in tags:
                    self._ended(tag, Outcome.CONFIRMED if is_confirmed else Outcome.NACKED)
        return len(self.flight) < count

    def _ended(self, tag: int, outcome: Outcome) -> None:
        number, sent = self.flight.pop(tag)
        sent.end(outcome, time.time())
        if outcome is Outcome.CONFIRMED:
            self.confirmed += 1
            del self.attempts[number]
        else:
            self.again.append(number)

    def _give_up(self) -> None:
        """Nobody will say what became of these."""
        lost = [self.flight[tag][0] for tag in sorted(self.flight)]
        for tag in list(self.flight):
            self.flight.pop(tag)[1].end(Outcome.UNKNOWN, time.time())
        self.again.extendleft(reversed(lost))


class Consumer(Application):
    """Acks what it gets, some of it a little later."""

    def use(self, link: Link, channel: str) -> None:
        try:
            link.consume(self.queue, prefetch=PREFETCH, arguments=self.wish())
            self._take(link, channel)
        finally:
            self.history.ends[channel] = time.time()

    def wish(self) -> Table:
        """The arguments to consume with."""
        return {}

    def _take(self, link: Link, channel: str) -> None:
        unacked: list[Delivery] = []
        tag, acked_at, heard = 0, time.time(), time.time()
        while not self.is_over.is_set():
            link.poll(POLL_SECONDS)
            now = time.time()
            for arrived in link.take_arrived():
                unacked.append(self.got(arrived, channel))
                tag, heard = arrived.delivery_tag, now
            if unacked and (len(unacked) >= ACK_AT_LEAST or now - acked_at > ACK_SECONDS):
                for delivery in unacked:
                    delivery.acked = now
                link.ack(tag)
                unacked, acked_at = [], now
            if any(isinstance(method, BasicCancel) for method in link.take_methods()):
                return
            if now - heard > PATIENCE_SECONDS:
                raise SilentNode("it delivers nothing")

    def got(self, arrived: Arrived, channel: str) -> Delivery:
        return note(self.history, self.queue, channel, arrived)


class Reader(Consumer):
    """Reads a stream from where it was, and at times from its beginning again."""

    def __init__(self, name: str, queue: str, nodes: Sequence[str], find: Finder, history: History) -> None:
        super().__init__(name, queue, nodes, find, history)
        self.next_offset = 0

    def wish(self) -> Table:
        return {OFFSET: 0 if self.rng.random() < FROM_BEGINNING else self.next_offset}

    def got(self, arrived: Arrived, channel: str) -> Delivery:
        assert arrived.offset is not None
        self.next_offset = max(self.next_offset, arrived.offset + 1)
        return super().got(arrived, channel)


class Maker(Application):
    """Deletes a queue and makes it again, over and over. Each time it publishes something and takes it: what
    it gets is what it has published since it made the queue; and perhaps, since a broker may have been paused
    with it, what it has published before over another link and was never confirmed.
    """

    def __init__(self, name: str, queue: str, nodes: Sequence[str], find: Finder, history: History) -> None:
        super().__init__(name, queue, nodes, find, history)
        self.generation = 0
        self.unconfirmed: set[bytes] = set()  # what was published, and may come at any time
        self.completed = 0  # generations that were deleted after all was taken
        self.wrong: list[str] = []

    def use(self, link: Link, channel: str) -> None:
        link.confirm()
        tag = 0  # of the last publish
        while not self.is_over.is_set():
            link.delete(self.queue)  # that of an earlier link, perhaps
            link.declare(self.queue, MADE)
            self.generation += 1
            sent = [b"%d:%d" % (self.generation, number) for number in range(self.rng.randrange(10))]
            self._publish(link, sent, tag)
            tag += len(sent)
            self._take_all(link, sent)
            self.completed += 1
            self.is_over.wait(RETRY_SECONDS)

    def _publish(self, link: Link, bodies: list[bytes], tag: int) -> None:
        """Return when all are confirmed. `tag` is that of the publish before these."""
        self.unconfirmed.update(bodies)
        for body in bodies:
            link.publish(self.queue, body, 0)
        awaited = set(range(tag + 1, tag + 1 + len(bodies)))
        while awaited:
            for method in link.take_methods():
                if not isinstance(method, BasicAck):
                    raise SilentNode("it does not take a message")
                up_to = method.delivery_tag
                awaited -= {each for each in awaited if each == up_to or (method.multiple and each < up_to)}
            if awaited:
                link.receive(PATIENCE_SECONDS)
        self.unconfirmed.difference_update(bodies)

    def _take_all(self, link: Link, sent: list[bytes]) -> None:
        got = []
        while (arrived := link.get(self.queue)) is not None:
            got.append(arrived.body)
            link.ack(arrived.delivery_tag)
        if [body for body in dict.fromkeys(got) if body not in self.unconfirmed] != sent:
            self.wrong.append(f"{self.queue} was made anew, got {sent}, and has {got}")


def note(history: History, queue: str, consumer: str, arrived: Arrived) -> Delivery:
    """Write down what a consumer got. A body begins with the name of the message."""
    message = arrived.body.split(b" ", 1)[0].decode()
    delivery = Delivery(message, queue, consumer, time.time(), arrived.redelivered, offset=arrived.offset)
    history.deliveries.append(delivery)
    return delivery
