"""A queue of any kind, as exchanges, channels and operators see it.

The kinds are `ClassicQueue` (quorum queues as well), `Stream`, and two that belong to an exchange and that no
client can use: `DelayQueue` and `SeenQueue`. What differs between them is behind the methods here, so that
nobody else asks of which kind a queue is.

Publishing only marks a queue as touched; it is drained at the end of the turn, so that one turn's deliveries
leave together.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.errors import AccessRefused
from warren.amqp.table import Table
from warren.broker.binding import Incoming
from warren.broker.client import ClientId, Origin
from warren.broker.consumer import Consumer, ConsumeRequest, View
from warren.broker.entry import Entry
from warren.broker.events import MessageDelivered
from warren.broker.flow import QueueFlow
from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT, ON_ITS_WAY
from warren.broker.rules import Rules, rules_of
from warren.broker.safety import Safety
from warren.broker.store import MessageLog, Store, StreamLog
from warren.broker.surroundings import Surroundings


class Queue:
    is_queue = True  # and no exchange, among the destinations of bindings
    internal = False  # whether the queue belongs to an exchange, and is not for clients
    routes_again = False  # whether messages are routed once more when they leave, and need all their keys

    def __init__(
        self,
        name: str,
        vhost: str,
        surroundings: Surroundings,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        owner: ClientId | None = None,
        arguments: Table | None = None,
    ) -> None:
        self.name = name
        self.vhost = vhost
        self.surroundings = surroundings
        self.events = surroundings.events
        self.clock = surroundings.clock
        self.budget = surroundings.turns.budget
        self.touched_queues = surroundings.touched_queues
        self.touched = False  # whether the queue stands among those, to be drained in this turn
        self.flow = QueueFlow(surroundings.timers)
        self.holding = False  # whether publishers are held back because of the backlog
        self.returning = 0  # clients that are giving back very many messages: until then nothing goes out
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner  # the connection that an exclusive queue belongs to
        self.arguments = arguments or {}
        self.rules = rules_of(self.arguments)
        self.incoming = Incoming()
        self.deleted = False
        self.had_consumer = False
        self.exclusive_consumer: Consumer | None = None
        self.safety: Safety | None = None  # says when messages are safe that are on their way to disk
        self.unacked = 0
        self.delivered = 0
        self.delivered_bytes = 0

    # --- on the path of every message ---

    def publish(self, message: Message) -> int:
        """STORED, ON_ITS_WAY to disk and not safe before it is there, or REFUSED."""
        raise NotImplementedError

    def touch(self) -> None:
        """See to it that the queue is drained at the end of this turn, if that could be of use."""

    def drain(self) -> None:
        """Deliver as much as there are messages, and consumers that can take them; of very many a part."""
        raise NotImplementedError

    def settle(self, entry: Entry) -> None:
        """The client that an entry was delivered to has acknowledged it."""
        raise NotImplementedError

    def requeue(self, entry: Entry) -> None:
        """The client that an entry was delivered to wants it back in the queue."""
        raise NotImplementedError

    def reject(self, entry: Entry) -> None:
        """The client that an entry was delivered to does not want it back in the queue."""
        raise NotImplementedError

    def take_back(self, entry: Entry) -> None:
        """The client that an entry was delivered to is gone, or asks for all that it has not settled."""
        raise NotImplementedError

    def forget(self, entry: Entry) -> None:
        """Nothing is left of an entry here: its message is safe elsewhere, or unwanted."""
        raise NotImplementedError

    def redelivered(self, entry: Entry) -> None:
        """An entry goes once more to the consumer that has it already."""
        raise NotImplementedError

    def get(self, no_ack: bool) -> Entry | None:
        """The first message for basic.get. TooMuchForATurn while it is not known which one is the first."""
        raise NotImplementedError

    def tell_delivered(self, entry: Entry, origin: Origin, consumer_tag: str, delivery_tag: int) -> None:
        message, redelivered = entry.message, entry.delivery_count > 0
        self.surroundings.trace_delivered(message, self.name, origin, redelivered=redelivered)
        if self.events.delivering.is_next():
            self.events.emit(
                MessageDelivered(self.vhost, self.name, message, consumer_tag, delivery_tag, redelivered)
            )

    # --- how much there is ---

    def length(self) -> int:
        """How many messages are ready."""
        raise NotImplementedError

    def body_bytes(self) -> int:
        raise NotImplementedError

    @property
    def message_count(self) -> int:
        return self.length()

    @property
    def message_bytes(self) -> int:
        return self.body_bytes()

    @property
    def next_offset(self) -> int:
        """The offset behind that of the last message. The first message of a queue has offset 0."""
        raise NotImplementedError

    def logs(self) -> list[tuple[str, MessageLog | StreamLog]]:
        """The logs of a queue that is on disk, by the names of their parts."""
        raise NotImplementedError

    # --- consumers ---

    @property
    def consumers(self) -> list[Consumer]:
        raise NotImplementedError

    @property
    def is_consumed(self) -> bool:
        return bool(self.consumers)

    @property
    def is_worked_off(self) -> bool:
        """Whether the queue has consumers who take messages away, and do not only look at them."""
        raise NotImplementedError

    @property
    def is_abandoned(self) -> bool:
        """Whether this is an auto-delete queue whose last consumer is gone."""
        return self.auto_delete and self.had_consumer and not self.is_consumed

    def view_for(self, request: ConsumeRequest) -> View | None:
        """The way through the queue of a consumer that asks for its own. 406 if that makes no sense."""
        raise NotImplementedError

    def admit(self, consumer: Consumer) -> None:
        """403 if another consumer, or this one, wants to be alone."""
        if self.exclusive_consumer is not None or (consumer.exclusive and self.is_consumed):
            raise AccessRefused(f"{self.what} in exclusive use")
        if consumer.exclusive:
            self.exclusive_consumer = consumer

    def add_consumer(self, consumer: Consumer) -> None:
        raise NotImplementedError

    def remove_consumer(self, consumer: Consumer) -> None:
        raise NotImplementedError

    # --- the rest ---

    @property
    def what(self) -> str:
        """The queue's name in messages to users."""
        return f"queue '{self.name}' in vhost '{self.vhost}'"

    def used(self) -> None:
        """Somebody has declared the queue, consumed from it or looked into it."""

    def set_rules(self, rules: Rules) -> None:
        """From now on these rules hold, for messages that are there as well."""
        self.rules = rules

    def purge(self) -> int:
        """Drop all messages that are ready; of very many a part each turn. How many that were."""
        raise NotImplementedError

    def open(self, store: Store) -> None:
        """Take over the messages that the store has of the queue, if it keeps any."""

    def end(self) -> None:
        """The queue is deleted and empty. Whatever refers back to it is let go, so that the queue is gone
        with the last of its messages that is out, and need not wait for the garbage collector.
        """
        self.owner = None

    def release_memory(self) -> None:
        """The broker ends: free what the garbage collector knows nothing of."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self.vhost!r}: {self.length()} ready>"


def publish_to(queues: Iterable[Queue], message: Message) -> set[Safety]:
    """Publish a message that nobody confirms. Where the message is not safe yet."""
    unsafe: set[Safety] = set()
    for queue in queues:
        if queue.publish(message) in {ON_ITS_WAY, AFTER_NEXT} and queue.safety is not None:
            unsafe.add(queue.safety)
    return unsafe
