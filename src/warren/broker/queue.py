"""A queue of any kind, as exchanges, channels and operators see it.

The kinds are `ClassicQueue` (also for quorum queues), `Stream`, and two that belong to an exchange and that
no client can use: `DelayQueue` and `SeenQueue`. The methods here hide what differs between them, so that no
other code asks for the kind of a queue.

Publishing only marks a queue as touched. Touched queues are drained at the end of the turn, so that all
deliveries of a turn are sent together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from warren.amqp.errors import AccessRefused, ResourceLocked
from warren.amqp.table import Table
from warren.broker.binding import Incoming
from warren.broker.client import ClientId, Origin
from warren.broker.consumer import Consumer, ConsumeRequest, View
from warren.broker.entry import Entry
from warren.broker.events import MessageDelivered
from warren.broker.flow import QueueFlow
from warren.broker.history import History
from warren.broker.message import Message
from warren.broker.rules import Rules, queue_type, rules_of
from warren.broker.safety import Safety
from warren.broker.selector import Selector
from warren.broker.store import NOTHING_TO_READ, MessageLog, Store, StreamLog
from warren.broker.surroundings import Surroundings
from warren.broker.tally import Tally
from warren.broker.walk import Walk


class Queue:
    is_queue = True  # a binding's destination is a queue or an exchange
    lets_go = True  # whether single messages can be taken out
    internal = False  # whether the queue belongs to an exchange, and is not for clients
    routes_again = False  # whether messages are routed again when they leave, and so must keep CC and BCC

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
        self.surroundings = surroundings  # what all queues of the vhost share; some of it is at hand below
        self.events = surroundings.events
        self.clock = surroundings.clock
        self.budget = surroundings.turns.budget
        self.touched_queues = surroundings.touched_queues  # the queues to be drained in this turn
        self.touched = False  # whether this queue is among them
        self.flow = QueueFlow(surroundings.timers)
        self.holding = False  # whether publishers are held back because of the backlog
        self.returning = 0  # how many hold the queue (`Hold`); meanwhile it delivers nothing
        self.paused = False  # whether an operator has paused it: it takes messages, and delivers none
        self.unavailable = ""  # why nobody can use it now, though it lives here: too few copies are there
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner  # the connection that an exclusive queue belongs to
        self.arguments = arguments or {}
        self.rules = rules_of(self.arguments)  # what arguments and policies ask for
        self.incoming = Incoming()  # the bindings that lead here
        self.deleted = False
        self.is_here = True  # whether it lives on this node, and not on another one of the cluster
        self.retired = False  # another node leads it, and nothing stands for it yet: routes still lead here
        self.replace: Callable[[], object] | None = None  # makes `replaced_by`, if the queue is retired
        self.replaced_by: Queue | None = None  # if another node leads it now, or this one: what stands for it
        self.had_consumer = False  # an auto-delete queue is only deleted if it had one
        self.exclusive_consumer: Consumer | None = None  # while it is there, no other may consume
        self.safety: Safety | None = None  # says when messages that are written to disk are safe
        self.unacked = 0  # messages that are out with clients
        self.tally = Tally()  # of this queue
        self.type_tally = surroundings.tally.of_type(
            queue_type(self.arguments)
        )  # of all like it in the vhost
        self.delivered_bytes = 0  # of the bodies of messages that were delivered
        self.history: History | None = None  # samples of the counts; None while there is nothing to tell

    def not_here(self) -> ResourceLocked:
        """The error for who uses a queue that lives on another node, or has lived here until now."""
        return ResourceLocked(f"{self.what} is not led by this node any more: ask again")

    # --- on the path of every message ---

    def publish(self, message: Message) -> int:
        """Add a message; return one of the answers in `outcome.py`."""
        raise NotImplementedError

    def touch(self) -> None:
        """Have the queue drained at the end of this turn, if it might have something to deliver."""

    def drain(self) -> None:
        """Deliver messages for as long as consumers can take them; if there are very many, a part of them."""
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
        """The client that an entry was delivered to is gone, or has called basic.recover."""
        raise NotImplementedError

    def forget(self, entry: Entry) -> None:
        """Remove an entry from the log, too: its message is safe elsewhere, or not needed any more."""
        raise NotImplementedError

    def redelivered(self, entry: Entry) -> None:
        """An entry goes once more to the consumer that has it already."""
        raise NotImplementedError

    def get(self, no_ack: bool) -> Entry | None:
        """Take the first message, for basic.get. TooMuchForATurn if finding it takes longer than a turn."""
        raise NotImplementedError

    def tell_delivered(self, entry: Entry, origin: Origin, consumer_tag: str, delivery_tag: int) -> None:
        """Tell the firehose and subscribers of a delivery that a client asked for, by basic.get. To be called
        if `events.delivered` is set.
        """
        message, redelivered = entry.message, entry.delivery_count > 0
        self.surroundings.trace_delivered(message, self.name, origin, redelivered=redelivered)
        if self.events.delivering.is_next():
            self.events.emit(
                MessageDelivered(self.vhost, self.name, message, consumer_tag, delivery_tag, redelivered)
            )

    def tell_drained(self, entry: Entry, consumer: Consumer, delivery_tag: int) -> None:
        """The same for a delivery to a consumer: what it costs is charged to the budget for draining."""
        budget = self.budget
        left = budget.left
        self.tell_delivered(entry, consumer.origin, consumer.tag, delivery_tag)
        budget.draining -= left - budget.left
        budget.left = left

    def count_got(self, entry: Entry | None, no_ack: bool) -> None:
        """Count an answer to basic.get. `goes_out` has counted the entry as delivered, if there is one."""
        for tally in (self.tally, self.type_tally):
            if entry is None:
                tally.got_empty += 1
            else:
                tally.got += 1
                tally.got_no_ack += no_ack

    # --- how much there is ---

    @property
    def delivered(self) -> int:
        """How many messages were delivered so far, redeliveries included."""
        return self.tally.delivered

    def length(self) -> int:
        """How many messages are ready."""
        raise NotImplementedError

    def body_bytes(self) -> int:
        """The size of the bodies of all ready messages."""
        raise NotImplementedError

    @property
    def message_count(self) -> int:
        return self.length()

    @property
    def message_bytes(self) -> int:
        return self.body_bytes()

    def held_in_memory(self) -> tuple[int, int]:
        """How many ready messages are in memory as entries, and the size of their bodies."""
        return 0, 0

    def head(self) -> Message | None:
        """The next message to go out, if it is in memory."""
        return None

    @property
    def next_offset(self) -> int:
        """The offset that the next message will get. The first message of a queue has offset 0."""
        raise NotImplementedError

    def logs(self) -> list[tuple[str, MessageLog | StreamLog]]:
        """The logs of a queue that is on disk, by the names of their parts."""
        raise NotImplementedError

    def last_safe(self, part: str) -> int:
        """The last position in one of these logs that others may read, or NOTHING_TO_READ for all."""
        return NOTHING_TO_READ

    # --- consumers ---

    @property
    def consumers(self) -> list[Consumer]:
        raise NotImplementedError

    @property
    def is_consumed(self) -> bool:
        return bool(self.consumers)

    @property
    def is_worked_off(self) -> bool:
        """Whether the queue has consumers that take messages out of it, and do not only browse."""
        raise NotImplementedError

    def is_active(self, consumer: Consumer) -> bool:
        """Whether a consumer gets messages. With a single active consumer, the others only wait."""
        return True

    @property
    def is_abandoned(self) -> bool:
        """Whether this is an auto-delete queue whose last consumer is gone."""
        return self.auto_delete and self.had_consumer and not self.is_consumed

    def view_for(self, request: ConsumeRequest) -> View | None:
        """A view, for a consumer that chooses its messages. 406 if its arguments make no sense."""
        raise NotImplementedError

    def admit(self, consumer: Consumer) -> None:
        """403 if the queue has an exclusive consumer, or this one wants to be exclusive and is not alone."""
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

    def pause(self, *, paused: bool) -> None:
        """Deliver nothing from now on, or deliver again."""
        self.paused = paused
        self.touch()

    def walk(self, selector: Selector | None = None, above: int = 0) -> Walk:
        """A walk through the messages that are here now and that the selector matches, those beyond a
        position. With priorities, positions count in each level for itself.
        """
        raise NotImplementedError

    def is_full_for(self, message: Message) -> bool:
        """Whether the queue would refuse a message, since it has as many as it may."""
        return False

    def has_seen(self, message: Message) -> bool:
        """Whether deduplication would drop a message."""
        return False

    def place_on_disk(self, message: Message) -> tuple[str, int] | None:
        """In which part of the queue's log a message like this one is, and the last position there; None if
        the queue does not keep it on disk.
        """
        return None

    def put_back(self, entry: Entry) -> None:
        """An entry that was taken out for another queue, and did not get there, returns to its place."""
        raise NotImplementedError

    def stands(self) -> Queue | None:
        """What stands for this queue now: itself, or another object since its leader has changed; None if it
        is deleted.
        """
        queue: Queue | None = self
        while queue is not None and queue.deleted:
            if queue.replace is not None:
                queue.replace()
            queue = queue.replaced_by
        return queue

    def used(self) -> None:
        """Somebody has declared the queue, consumed from it or looked into it."""

    def set_rules(self, rules: Rules) -> None:
        """These rules hold from now on, also for messages that are in the queue already."""
        self.rules = rules

    def purge(self) -> tuple[int, Iterator[int]]:
        """Drop all ready messages. Return how many there were, and steps that yield their cost, which the
        caller has to take: after the last one no message comes back, even if the broker is killed.
        """
        raise NotImplementedError

    def open(self, store: Store) -> None:
        """Open the queue's log, and take over the messages in it. A queue that is not durable has none."""

    def detach(self) -> None:
        """The queue's logs are not its own any more: another node leads them. What it does from now on does
        not change them.
        """

    def end(self) -> None:
        """The queue is deleted and empty. Let go of all that refers back to it, so that the queue is freed
        with the last of its unacked messages, without the garbage collector.
        """
        self.owner = None

    def release_memory(self) -> None:
        """The broker ends: free the entries, which the garbage collector does not track."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self.vhost!r}: {self.length()} ready>"


class Hold:
    """Queues that deliver nothing for a while: until all entries that return are back, so that they go out in
    order; or until messages that were moved there have left their old queue.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues = list(queues)
        for queue in self.queues:
            queue.returning += 1

    def add(self, queue: Queue) -> None:
        self.queues.append(queue)
        queue.returning += 1

    def end(self) -> None:
        for queue in self.queues:
            queue.returning -= 1
            queue.touch()
        self.queues.clear()
