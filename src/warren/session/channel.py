"""A channel: what is published on it, delivered through it, and acknowledged.

The path of every message is here; the methods that declare, bind, consume and the like are in the
modules beside it. What a channel works out for one message (the route, what its properties mean) it
keeps for the next, until the bytes, or the vhost's version, say that something changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import cast

from warren.amqp.errors import NotImplementedByBroker, PreconditionFailed, SoftError
from warren.amqp.methods import BasicAck, BasicCancel, BasicReturn, ChannelClose, Method
from warren.amqp.properties import PERSISTENT, decode_properties
from warren.amqp.reader import EMPTY_PROPERTIES, ContentReader
from warren.amqp.traits import expiration_of, priority_of
from warren.broker import routing_headers
from warren.broker.changes import Applied
from warren.broker.client import Origin
from warren.broker.commands import Command
from warren.broker.deduplication import Seen
from warren.broker.entry import Entry
from warren.broker.events import ConsumerCancelled, MessageAcked, MessageDeduplicated, MessagePublished
from warren.broker.exchange.exchange import Exchange
from warren.broker.message import Message, publish_message
from warren.broker.outcome import AFTER_NEXT
from warren.broker.queue import Queue
from warren.broker.rules import TIME_MS_MAX
from warren.broker.safety import when_all_safe
from warren.session import chores
from warren.session.asking import Asking
from warren.session.confirms import Confirms
from warren.session.consumer import ChannelConsumer
from warren.session.deliveries import Deliveries
from warren.session.publish_rights import check_key, check_publish, check_user_id
from warren.session.reply_to import REPLY_TO, close_reply_queue, rewrite_reply_to
from warren.session.roles import Host
from warren.session.transaction import Transaction

NO_ROUTE = 312
PERSISTENT_WORK = 6  # units for one that goes to disk: it is copied, checked and written
WORK_AT_ONCE_MAX = 40_000
BODY_WORK_SHIFT = 10  # a kilobyte, copied and checked, costs about as much as a small message
WIDE_WORK_AT_ONCE_MAX = 10_000  # for more queues than a step has
QUEUES_A_STEP = 20
CONSUMER_WORK = 20
WIDE_SHIFT = 11  # two thousand queues are more than the processor's caches hold: each takes twice the time


class Channel(ContentReader):
    def __init__(self, number: int, connection: Host) -> None:
        self.connection = connection
        self.origin = Origin(connection.name, number, connection.user_name)
        self.vhost = connection.vhost
        self.events = connection.node.events
        self.output = connection.output
        self.body_bytes_max = connection.node.limits.message_bytes_max
        self.deliveries = Deliveries(connection.output, number)
        self.consumers: dict[str, ChannelConsumer] = {}
        self.last_queue = ""
        self.prefetch_count = 0
        self.prefetch_size = 0
        self.transaction: Transaction | None = None
        self.reply_consumer: ChannelConsumer | None = None
        self.version = self.vhost.version
        self.route_version = 0
        self.queues: list[Queue] = []
        self.by_properties = False
        self.seen: Seen | None = None
        self.message_properties = EMPTY_PROPERTIES
        self.persistent = False
        self.clock = connection.node.clock
        self.expiration_ms = -1
        self.priority = 0
        self.special = False
        self.extra_keys: list[str] = []
        self.extra_keys_checked = False
        self.confirms = Confirms(connection.output, number)
        self.has_published = False
        self.reached: list[Queue] | None = None
        self.routes: list[list[Queue]] = []
        self.budget = connection.budget
        self.published_total = 0
        self.look_again_ms = 0
        self.chores: chores.Chores | None = None
        self.withheld: list[Method] | None = None  # cancel notices, while this channel deletes a queue

    # --- publishing ---

    def published(self, body: bytes) -> int:
        if self.publish_changed or self.route_version != self.version.number:
            self.resolve()
        if self.properties_changed:
            self.examine()
        if self.special or self.transaction is not None:
            self.publish_special(body)
            return 0
        message = publish_message(
            self.exchange,
            self.routing_key,
            self.message_properties,
            body,
            self.persistent,
            self.clock.time_ms,
            self.expiration_ms,
            self.priority,
        )
        self.enqueue(message, self.queues, self.mandatory)
        return 0

    def resolve(self) -> None:
        """Find the exchange and, unless it depends on the properties, the queues."""
        if self.immediate:
            raise NotImplementedByBroker("immediate=true")
        vhost = self.vhost
        exchange = check_publish(self.connection.access, vhost, self.exchange, self.routing_key)
        self.seen = exchange.seen
        self.by_properties = exchange.seen is not None or vhost.depends_on_properties(exchange)
        self.queues = [] if self.by_properties else vhost.route(exchange, self.routing_key)
        self.route_version = self.version.number
        self.publish_changed = False
        self._see_if_special()

    def examine(self) -> None:
        """Check the properties, and prepare them for delivery."""
        if self.user_id is not None:
            check_user_id(self.connection.access, self.user_id)
        if self.expiration is not None:
            check_expiration(self.expiration)
        self.expiration_ms = expiration_of(self.properties)
        self.priority = priority_of(self.properties)
        self.message_properties = self.properties
        self.persistent = self.delivery_mode == PERSISTENT
        self.extra_keys = []
        if self.has_routing_headers:
            self.extra_keys, self.message_properties = routing_headers.take(self.properties)
        self.properties_changed = False
        self._see_if_special()

    def _see_if_special(self) -> None:
        self.extra_keys_checked = False
        self.special = self.by_properties or bool(self.extra_keys) or self.reply_to == REPLY_TO

    def publish_special(self, body: bytes) -> None:
        """A message whose route depends on its properties, that asks for a reply, or waits for tx.commit."""
        properties = self.message_properties
        queues = self.queues
        if self.by_properties or self.extra_keys:
            exchange = self.vhost.exchanges_by_wire_name[self.exchange]
            self._check_extra_keys(exchange)
            key = self.routing_key[1:].decode("utf-8", "surrogateescape")
            queues = self.vhost.walk(exchange, [key, *self.extra_keys], decode_properties(properties))
            if len(queues) == 1 and queues[0].routes_again:
                properties = self.properties  # with all its keys
        if self.reply_to == REPLY_TO:
            properties = rewrite_reply_to(properties, self.reply_consumer)
        message = Message(
            self.exchange, self.routing_key, properties, body, self.persistent, self.clock.time_ms
        )
        if self.transaction is not None:
            self.transaction.publish(message, queues, self.seen, mandatory=self.mandatory)
        else:
            self.enqueue_once(message, queues, self.seen, self.mandatory)

    def _check_extra_keys(self, exchange: Exchange) -> None:
        """Once for messages that follow each other with the same keys, as for the routing key."""
        if not self.extra_keys_checked:
            for key in self.extra_keys:
                check_key(self.connection.access, self.vhost, exchange, key)
            self.extra_keys_checked = True

    def enqueue_once(self, message: Message, queues: list[Queue], seen: Seen | None, mandatory: bool) -> None:
        """The same as `enqueue`, unless the exchange has seen the message before: then nobody gets it."""
        if seen is None:
            self.enqueue(message, queues, mandatory)
            return
        if seen.log is not None:
            self.confirms.note(AFTER_NEXT, seen.log.safety)
        if not seen.has(message, self.clock.time_ms):
            refused = self.confirms.refusals
            self.enqueue(message, queues, mandatory)
            if refused == self.confirms.refusals:  # else it may come again, and has to
                seen.note(message, self.clock.time_ms)
            return
        if self.events.died:
            self.events.emit(MessageDeduplicated(self.vhost.name, message.exchange_name, message))
        self.enqueue(message, [], False)

    def enqueue(self, message: Message, queues: list[Queue], mandatory: bool) -> None:
        """Hand the message to its queues. What nobody gets is returned, if that was asked for."""
        work = 1 + (len(message.body) >> BODY_WORK_SHIFT)
        if message.persistent:
            work *= PERSISTENT_WORK
        work *= 1 + (len(queues) >> WIDE_SHIFT)
        total = work * (1 + len(queues))
        most = WORK_AT_ONCE_MAX if len(queues) <= QUEUES_A_STEP else WIDE_WORK_AT_ONCE_MAX
        if total > most and self.transaction is None and self.seen is None:
            self.spread_out(message, queues, mandatory, work)
            return
        self.budget.left -= total
        for queue in queues:
            outcome = queue.publish(message)
            if outcome:
                self.confirms.note(outcome, queue.safety)
        self.has_enqueued(message, queues, mandatory)

    def spread_out(self, message: Message, queues: list[Queue], mandatory: bool, work: int) -> None:
        """Hand a message that is too much for one turn to its queues over several. The channel waits
        for that; if it ends meanwhile, the other queues get the message all the same.
        """

        def steps() -> Iterator[int]:
            step = QUEUES_A_STEP if len(queues) > QUEUES_A_STEP else 1
            for begun in range(0, len(queues), step):
                while store.safety.behind or self.confirms.is_behind():
                    yield WORK_AT_ONCE_MAX  # it is the disk's turn
                for queue in queues[begun : begun + step]:
                    if not queue.deleted:
                        self.confirms.note(queue.publish(message), queue.safety)
                yield work * step

        def end() -> None:
            if self.may_answer:
                self.has_enqueued(message, queues, mandatory)

        store = self.connection.node.store
        chores.do(self, steps(), end)

    def has_enqueued(self, message: Message, queues: list[Queue], mandatory: bool) -> None:
        """The queues have the message, or have refused it."""
        self.published_total += 1
        if mandatory and not queues:
            self.return_message(message)
        if self.confirms.on:
            self.confirms.published += 1
        if self.reached is not queues:
            self.reached = queues
            self.routes.append(queues)
        if not self.has_published:
            self.has_published = True
            self.connection.channels_that_published.append(self)
        if self.events.published:
            self.tell_published(message, queues)

    def tell_published(self, message: Message, queues: list[Queue]) -> None:
        if self.vhost.firehose is not None:
            extra_keys = None if self.transaction is not None else self.extra_keys  # else another message's
            self.vhost.firehose.published(message, queues, self.origin, extra_keys)
        if self.events.publishing.is_next():
            names = [queue.name for queue in queues]
            self.events.emit(MessagePublished(self.vhost.name, message, tuple(names)))

    def take_reached(self) -> Collection[Queue]:
        """All queues that messages of this batch went to."""
        routes, self.routes = self.routes, []
        self.reached = None
        if len(routes) == 1:
            return routes[0]
        routes = list({id(route): route for route in routes}.values())
        return {queue for route in routes for queue in route}

    def return_message(self, message: Message) -> None:
        self.reply(
            BasicReturn(
                reply_code=NO_ROUTE,
                reply_text="NO_ROUTE",
                exchange=message.exchange_name,
                routing_key=message.key,
            )
        )
        self.output.content(self.number, message.properties, message.body)

    def answer(self, *methods: Method) -> None:
        """Reply when all that was changed is on disk, by others too: a definition that this client did not
        have to change may be on its way there. Until then the channel waits.
        """
        store = self.connection.node.store
        unsafe = self.confirms.take_unsafe()
        if store.is_saving():
            unsafe.setdefault(store.safety, False)
        if not unsafe:
            self.reply(*methods)
            return
        self.wait()
        points = [(safety, safety.gathering + longer) for safety, longer in unsafe.items()]
        when_all_safe(points, lambda: self._answer_now(methods))

    def _answer_now(self, methods: tuple[Method, ...]) -> None:
        if self.waiting and not self.discarding:
            self.reply(*methods)
            self.go_on()

    def change(self, command: Command, then: Callable[[Applied], None]) -> None:
        """Ask the node for a change; `then` answers the client when the change is made, for which the channel
        waits.
        """
        Asking(self, then).ask(command)

    # --- acknowledging ---

    def acked(self, delivery_tag: int, multiple: bool) -> int:
        if self.transaction is not None:
            self.transaction.ack(self.outstanding_tags(delivery_tag, multiple))
        else:
            self.settle(delivery_tag, multiple)
        return 0

    def settle(self, delivery_tag: int, multiple: bool) -> None:
        if not multiple:
            entry = self.deliveries.take(delivery_tag)
            if entry is None:
                raise unknown_delivery_tag(delivery_tag)
            self.release(entry)
            self.room_changed()
        else:
            last_tag = self.last_of_many(delivery_tag)
            entries = self.deliveries.take_up_to(last_tag, chores.ACKED_AT_A_TIME_MAX)
            for entry in entries:
                self.release(entry)
            if len(entries) < chores.ACKED_AT_A_TIME_MAX:
                self.room_changed()
            else:
                chores.do(self, chores.ack(self, last_tag))

    def room_changed(self) -> None:
        """The channel's own limits may let more out."""
        if self.deliveries.rota is not None:
            self.deliveries.rota.touch()

    def release(self, entry: Entry) -> None:
        """An entry is acked: its queue forgets it, and its consumer may get another."""
        queue = entry.queue
        queue.settle(entry)
        if entry.consumer is not None:
            consumer = entry.consumer
            consumer.settled(entry)
        queue.touch()
        if self.events.acked and self.events.acking.is_next():
            self.events.emit(MessageAcked(queue.vhost, queue.name, entry.message))

    def reject(self, delivery_tag: int, *, multiple: bool, requeue: bool) -> None:
        if self.transaction is not None:
            self.transaction.reject(self.outstanding_tags(delivery_tag, multiple), requeue=requeue)
            return
        if multiple:
            last_tag = self.last_of_many(delivery_tag)
            chores.do(self, chores.give_back(self, last_tag, requeue=requeue))
            return
        entry = self.deliveries.take(delivery_tag)
        if entry is None:
            raise unknown_delivery_tag(delivery_tag)
        self.give_back(entry, requeue=requeue)
        self.room_changed()

    def give_back(self, entry: Entry, *, requeue: bool, settled: bool = True) -> None:
        """Return an entry to its queue, or have it leave that; `settled` if the client has said what is to
        become of it, and not just let go of it.
        """
        if not settled:
            entry.queue.take_back(entry)
        elif requeue:
            entry.queue.requeue(entry)
        else:
            entry.queue.reject(entry)
        if entry.consumer is not None:
            entry.consumer.settled(entry)
        entry.queue.touch()

    def deliver_again(self, entry: Entry, consumer: ChannelConsumer) -> None:
        """To the consumer that has it already."""
        entry.delivery_count += 1
        consumer.settled(entry)
        entry.queue.redelivered(entry)
        consumer.deliver(entry)

    def last_of_many(self, delivery_tag: int) -> int:
        """The tag up to which `multiple` goes; 0 stands for the last that was given."""
        if delivery_tag == 0:
            return self.deliveries.delivery_tag
        if not self.deliveries.is_outstanding(delivery_tag):
            raise unknown_delivery_tag(delivery_tag)
        return delivery_tag

    def outstanding_tags(self, delivery_tag: int, multiple: bool) -> list[int]:
        if not multiple or delivery_tag:
            settled = cast("Transaction", self.transaction).settled
            if not self.deliveries.is_outstanding(delivery_tag) or delivery_tag in settled:
                raise unknown_delivery_tag(delivery_tag)
        if not multiple:
            return [delivery_tag]
        last = delivery_tag or self.deliveries.delivery_tag
        return [tag for tag in self.deliveries.tags() if tag <= last]

    # --- consumers ---

    def wake_consumers(self) -> None:
        """Limits have changed: every queue consumed here may have something to deliver."""
        for consumer in self.consumers.values():
            consumer.queue.touch()

    def queue_is_gone(self, consumer: ChannelConsumer) -> None:
        """The queue of this consumer was deleted. If this channel asked for that, the client hears of it
        behind delete-ok.
        """
        self.forget_consumer(consumer)
        if self.withheld is not None:
            self.withheld += self.cancel_notices(consumer)
        elif not self.discarding:
            self.reply(*self.cancel_notices(consumer))

    def cancel_notices(self, *consumers: ChannelConsumer) -> list[Method]:
        """For a client that can understand them."""
        if not self.connection.has_capability("consumer_cancel_notify"):
            return []
        return [BasicCancel(consumer_tag=consumer.tag, no_wait=True) for consumer in consumers]

    def forget_consumer(self, consumer: ChannelConsumer) -> None:
        self.consumers.pop(consumer.tag, None)
        consumer.queue.remove_consumer(consumer)
        if self.deliveries.rota is not None:
            self.deliveries.rota.leave(consumer.queue)
            consumer.queue.touch()  # it may have other consumers here
        if self.reply_consumer is consumer:
            self.reply_consumer = None
            close_reply_queue(self.vhost, consumer.queue)
        self.events.emit(ConsumerCancelled(self.vhost.name, consumer.queue.name, consumer.tag))

    def cancel(self, consumer: ChannelConsumer) -> None:
        self.forget_consumer(consumer)
        self.vhost.remove_if_abandoned(consumer.queue)

    # --- waiting ---

    def go_on(self) -> None:
        """What the channel has waited for is there; if the channel has ended meanwhile, nothing happens."""
        if self.waiting:
            self.connection.go_on(self)

    def stop_waiting(self) -> None:
        self.waiting = False

    def listen_again(self) -> None:
        """Go on with what was deferred, unless the channel has to wait."""
        if self.held and not self.waiting:
            self.connection.go_on(self)

    # --- the end ---

    def reply(self, *methods: Method) -> None:
        for method in methods:
            self.output.method(self.number, method.encode())

    def reply_if_open(self, method: Method) -> None:
        """It took a while to find the answer."""
        if self.may_answer:
            self.reply(method)

    @property
    def is_open(self) -> bool:
        return not self.discarding and self.connection.channels.get(self.number) is self

    @property
    def may_answer(self) -> bool:
        """Whether the client is still to be told something: not once its connection is being closed."""
        return self.is_open and not self.connection.closing

    def fail(self, error: SoftError, method_id: tuple[int, int]) -> None:
        """Close the channel for the peer's mistake; what was deferred, or still comes on it, is dropped."""
        self.release_all()
        self.discard()
        class_id, method = method_id
        self.reply(
            ChannelClose(
                reply_code=error.code, reply_text=error.reply_text, class_id=class_id, method_id=method
            )
        )
        if self.deferred:  # the client may have closed it as well
            self.connection.go_on(self)

    def release_all(self, then: Callable[[], None] | None = None) -> None:
        """Stop consuming, and give back all that was not acknowledged."""
        self.confirms.end()
        self.deliveries.active = False
        returning = chores.give_back(self, self.deliveries.delivery_tag, requeue=True, settled=False)
        chores.do(self, self._releasing(list(self.consumers.values()), returning), then)

    def _releasing(self, consumers: list[ChannelConsumer], returning: Iterator[int]) -> Iterator[int]:
        for consumer in consumers:
            if self.consumers.get(consumer.tag) is consumer:
                self.forget_consumer(consumer)
            yield CONSUMER_WORK
        yield from returning
        for consumer in consumers:
            self.vhost.remove_if_abandoned(consumer.queue)
            yield 1


def answering(channel: Channel, answer: Method, *, no_wait: bool) -> Callable[[Applied], None]:
    """Sends the answer when a change is made, unless the client does not want to hear of it."""

    def reply(_applied: Applied) -> None:
        if not no_wait:
            channel.answer(answer)

    return reply


def unknown_delivery_tag(delivery_tag: int) -> PreconditionFailed:
    error = PreconditionFailed(f"unknown delivery tag {delivery_tag}")
    error.method_id = BasicAck.id
    return error


def check_expiration(value: bytes) -> None:
    text = value.decode("utf-8", "replace")
    if not value.isdigit() or int(value) > TIME_MS_MAX:
        raise PreconditionFailed(f"invalid expiration '{text}': expected a whole number of milliseconds")
