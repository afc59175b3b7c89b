"""A channel: it publishes messages, delivers them, and takes acknowledgements.

The path of every message is here; the methods that declare, bind, consume and the like are in the modules
beside this one. A channel works out the route of a message and the meaning of its properties, and keeps both
for the next message, until the bytes of the publish or the vhost's `version` change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator

from warren.amqp.errors import NotImplementedByBroker, PreconditionFailed, ResourceLocked, SoftError
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
from warren.broker.events import ConsumerCancelled, MessageAcked, MessageDeduplicated
from warren.broker.exchange.exchange import Exchange
from warren.broker.history import History
from warren.broker.message import Message, enqueue_work, publish_message
from warren.broker.outcome import AFTER_NEXT_ROUND
from warren.broker.queue import Queue
from warren.broker.rules import TIME_MS_MAX
from warren.broker.safety import Safety, when_all_safe
from warren.broker.tally import Tally
from warren.broker.turns import QUEUES_A_STEP
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
# Work is counted in units of `Budget`.
RESOLVE_WORK = 10  # to look up the exchange, and a route that it remembers
EXAMINE_WORK = 3  # to check properties
TAKE_KEYS_WORK = 15  # to take the keys of CC and BCC out of them
SPECIAL_WORK = 25  # to publish a message in `publish_special`, without its route
WORK_AT_ONCE_MAX = 40_000  # a message that costs more reaches its queues over several turns
WIDE_WORK_AT_ONCE_MAX = 10_000  # the same for a message with more queues than `QUEUES_A_STEP`
CONSUMER_WORK = 20  # to end one consumer


class Channel(ContentReader):
    def __init__(self, number: int, connection: Host) -> None:
        self.connection = connection
        self.origin = Origin(connection.name, number, connection.user_name)  # this channel, for the firehose
        self.vhost = connection.vhost
        self.events = connection.node.events
        self.output = connection.output
        self.body_bytes_max = connection.node.limits.message_bytes_max
        self.tally = Tally()  # of this channel
        self.totals = self.vhost.tally.clients  # of all channels of the vhost
        self.history: History | None = None  # samples of the channel's counts
        self.deliveries = Deliveries(connection.output, number, self.tally)  # delivered and not acknowledged
        self.consumers: dict[str, ChannelConsumer] = {}  # by consumer tag
        self.last_queue = ""  # the queue declared last, which an empty queue name stands for
        self.prefetch_count = 0  # of consumers started from now on; 0 for no limit
        self.prefetch_size = 0  # likewise, in bytes
        self.transaction: Transaction | None = None  # from tx.select on
        self.reply_consumer: ChannelConsumer | None = None  # the consumer of direct reply-to
        # The route of the last message, which is valid while `route_version` is the vhost's:
        self.version = self.vhost.version
        self.route_version = 0
        self.queues: list[Queue] = []
        self.exchange_tally = self.tally  # that of the exchange
        self.by_properties = False  # whether the route depends on the properties; `queues` is empty then
        self.seen: Seen | None = None  # what the exchange has seen, if it drops duplicates
        # The properties of the last message:
        self.message_properties = EMPTY_PROPERTIES  # as consumers get them, without the header BCC
        self.persistent = False
        self.expiration_ms = -1  # -1 for none
        self.priority = 0
        self.extra_keys: list[str] = []  # further routing keys, from the headers CC and BCC
        self.extra_keys_checked = False  # whether the user may publish with all of them
        self.special = False  # whether `publish_special` has to publish such a message
        self.clock = connection.node.clock
        self.confirms = Confirms(  # `answer` uses it even without confirm.select
            connection.output, number, self.tally, self.totals
        )
        self.answer_awaits: Collection[Safety] = ()  # what an answer waits for
        self.confirms.in_vain = self.leader_changed
        # Since the last end of a batch:
        self.has_published = False
        self.reached: list[Queue] | None = None  # the queues of the last message
        self.routes: list[list[Queue]] = []  # the queues of all messages, a list for each run of equal routes
        self.budget = connection.budget
        self.look_again_ms = 0  # when a delivery here may time out, at the earliest
        self.chores: chores.Chores | None = None  # work that takes more than a turn
        self.withheld: list[Method] | None = None  # cancel notices, while this channel deletes a queue

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection!r}>"

    # --- publishing ---

    def published(self, body: bytes) -> int:
        """A whole message has arrived. `warren perf throughput` watches this."""
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
        """Find the exchange and, unless the route depends on the properties, the queues."""
        if self.immediate:
            raise NotImplementedByBroker("immediate=true")
        vhost = self.vhost
        exchange = check_publish(self.connection.access, vhost, self.exchange, self.routing_key)
        self.seen = exchange.seen
        self.exchange_tally = exchange.tally
        self.by_properties = exchange.seen is not None or vhost.depends_on_properties(exchange)
        self.queues = [] if self.by_properties else vhost.route(exchange, self.routing_key)
        if vhost.elsewhere:
            vhost.check_route(exchange, self.queues)
        self.route_version = self.version.number
        self.publish_changed = False
        self.budget.left -= RESOLVE_WORK
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
            self.budget.left -= TAKE_KEYS_WORK + len(self.extra_keys)
        self.properties_changed = False
        self.budget.left -= EXAMINE_WORK
        self._see_if_special()

    def _see_if_special(self) -> None:
        self.extra_keys_checked = False
        self.special = self.by_properties or bool(self.extra_keys) or self.reply_to == REPLY_TO

    def publish_special(self, body: bytes) -> None:
        """Publish a message whose route depends on its properties, that uses direct reply-to, or that waits
        for tx.commit.
        """
        self.budget.left -= SPECIAL_WORK
        properties = self.message_properties
        queues = self.queues
        if self.by_properties or self.extra_keys:
            exchange = self.vhost.exchanges_by_wire_name[self.exchange]
            self._check_extra_keys(exchange)
            key = self.routing_key[1:].decode("utf-8", "surrogateescape")
            queues = self.vhost.walk(exchange, [key, *self.extra_keys], decode_properties(properties))
            if self.vhost.elsewhere:
                self.vhost.check_route(exchange, queues)
            if len(queues) == 1 and queues[0].routes_again:
                properties = self.properties  # with CC and BCC, since the message is routed again later
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
        """Check the keys once for a run of messages that have the same ones, as with the routing key."""
        if not self.extra_keys_checked:
            for key in self.extra_keys:
                check_key(self.connection.access, self.vhost, exchange, key)
            self.extra_keys_checked = True

    def enqueue(self, message: Message, queues: list[Queue], mandatory: bool) -> None:
        """Hand the message to its queues, over several turns if that is much work: then the channel waits
        meanwhile. A mandatory message without queues is returned.

        `warren perf throughput` watches this, for a message with many queues `benchmarks/flood.py`.
        """
        work = enqueue_work(message, len(queues))
        if is_much(work, len(queues)):
            chores.do(self, self._enqueuing(message, queues, mandatory))
            return
        self.budget.left -= work
        for queue in queues:
            outcome = queue.publish(message)
            if outcome:
                self.confirms.note(outcome, queue.safety)
        self.has_enqueued(message, queues, mandatory)

    def enqueue_once(self, message: Message, queues: list[Queue], seen: Seen | None, mandatory: bool) -> None:
        """Do as `enqueue`, unless the exchange has seen the message before: then no queue gets it."""
        if seen is None:
            self.enqueue(message, queues, mandatory)
        elif self._takes_turns(message, queues, seen):
            chores.do(self, self._enqueuing_once(message, queues, seen, mandatory))
        elif self._is_new(message, seen):
            refused = self.confirms.refusals
            self.enqueue(message, queues, mandatory)
            if refused == self.confirms.refusals:  # else the publisher has to send the message again
                self._note_seen(message, queues, seen)

    def enqueuing(
        self, message: Message, queues: list[Queue], seen: Seen | None, mandatory: bool
    ) -> Iterator[int]:
        """Do as `enqueue_once`, within a chore of the channel. Yield the cost of each step."""
        if not self._takes_turns(message, queues, seen):
            self.enqueue_once(message, queues, seen, mandatory)
        elif seen is None:
            yield from self._enqueuing(message, queues, mandatory)
        else:
            yield from self._enqueuing_once(message, queues, seen, mandatory)

    def _takes_turns(self, message: Message, queues: list[Queue], seen: Seen | None) -> bool:
        """Whether the message cannot be in all its queues, or be known as a duplicate, in this turn."""
        is_coming = seen is not None and seen.is_coming(message)
        return is_coming or is_much(enqueue_work(message, len(queues)), len(queues))

    def _enqueuing_once(
        self, message: Message, queues: list[Queue], seen: Seen, mandatory: bool
    ) -> Iterator[int]:
        """Do as `enqueue_once`, step by step. Until the message is in all its queues, equal ones wait."""
        yield from seen.awaiting(message)
        if self._is_new(message, seen):
            refused = self.confirms.refusals
            with seen.coming(message):
                is_there = yield from self._enqueuing(message, queues, mandatory)
            if is_there and refused == self.confirms.refusals:
                self._note_seen(message, queues, seen)

    def _is_new(self, message: Message, seen: Seen) -> bool:
        """Whether the exchange has not seen the message before. If it has, no queue gets the message."""
        if not seen.has(message, self.clock.time_ms):
            return True
        self._await_notes(seen)
        if self.events.died:
            self.events.emit(MessageDeduplicated(self.vhost.name, message.exchange_name, message))
        self.has_enqueued(message, [], False)
        return False

    def _note_seen(self, message: Message, queues: list[Queue], seen: Seen) -> None:
        self._await_notes(seen)
        seen.note(message, self.clock.time_ms, elsewhere=[queue.safety for queue in queues])

    def _await_notes(self, seen: Seen) -> None:
        """The message is confirmed when the note of it is safe."""
        if seen.log is not None:
            self.confirms.note(AFTER_NEXT_ROUND, seen.log.safety)

    def _enqueuing(
        self, message: Message, queues: list[Queue], mandatory: bool
    ) -> Generator[int, None, bool]:
        """Hand a message to its queues step by step. If the channel ends meanwhile, the remaining queues
        still get it. Return whether none of the queues has another leader since.
        """
        store = self.connection.node.store
        work = enqueue_work(message, len(queues)) // (1 + len(queues))
        step = QUEUES_A_STEP if len(queues) > QUEUES_A_STEP else 1
        for begun in range(0, len(queues), step):
            while store.safety.behind or self.confirms.is_behind():
                yield WORK_AT_ONCE_MAX  # the whole turn: wait for the disk
            for queue in queues[begun : begun + step]:
                standing = queue.stands()
                if standing is not None and standing.is_here:
                    self.confirms.note(standing.publish(message), standing.safety)
            yield work * step
        if any(not queue.is_here and queue.stands() is not None for queue in queues):
            self.leader_changed()
            return False
        if self.may_answer:
            self.has_enqueued(message, queues, mandatory)
        return True

    def has_enqueued(self, message: Message, queues: list[Queue], mandatory: bool) -> None:
        """The queues have the message, or have refused it."""
        if self.transaction is not None:
            self.exchange_tally = self._tally_of_exchange(message)
        self.count_published(len(queues))
        if not queues:
            self.unroutable(message, mandatory)
        if self.confirms.on:
            self.confirms.published += 1
            self.totals.with_confirms += 1
        if self.reached is not queues:
            self.reached = queues
            self.routes.append(queues)
        if not self.has_published:
            self.has_published = True
            self.connection.channels_that_published.append(self)
        if self.events.published:
            self.tell_published(message, queues)

    def count_published(self, routed: int) -> None:
        """Count a message that so many queues got."""
        self.tally.published += 1
        self.totals.published += 1
        self.totals.routed += routed
        self.exchange_tally.published += 1
        self.exchange_tally.routed += routed

    def _tally_of_exchange(self, message: Message) -> Tally:
        """For a message of a transaction, which may have gone to another exchange than the last one. An
        exchange that was deleted meanwhile needs no counting.
        """
        exchange = self.vhost.exchanges_by_wire_name.get(message.exchange)
        return Tally() if exchange is None else exchange.tally

    def unroutable(self, message: Message, mandatory: bool) -> None:
        for tally in (self.tally, self.totals):
            if mandatory:
                tally.returned += 1
            else:
                tally.dropped += 1
        if mandatory:
            self.return_message(message)

    def tell_published(self, message: Message, queues: list[Queue]) -> None:
        # After tx.commit, `extra_keys` are those of another message.
        extra_keys = None if self.transaction is not None else self.extra_keys
        self.vhost.tell_published(message, queues, self.origin, extra_keys)

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
        """Reply when all changes are on disk, those of other clients too: the definition that this client
        declared again may still be on its way there. Until then the channel waits.
        """
        store = self.connection.node.store
        unsafe = self.confirms.take_unsafe()
        if store.is_saving():
            unsafe.setdefault(store.safety, False)
        if not unsafe:
            self.reply(*methods)
            return
        self.wait()
        self.answer_awaits = unsafe.keys()
        when_all_safe(unsafe.items(), lambda: self._answer_now(methods), self.leader_changed)

    def waits_for(self, safety: Safety) -> bool:
        """Whether a confirm or an answer waits until this safety has made something safe."""
        return safety in self.answer_awaits or self.confirms.waits_for(safety)

    def _answer_now(self, methods: tuple[Method, ...]) -> None:
        self.answer_awaits = ()
        if self.waiting and not self.discarding:
            self.reply(*methods)
            self.go_on()

    def leader_changed(self) -> None:
        """A queue has another leader, and nobody will say whether what was published to it is safe."""
        self.lock_out(
            "a queue has another leader now: publish again what is not confirmed, at the new leader"
        )

    def lock_out(self, reason: str) -> None:
        """Close the channel with 405, which no method of the client has caused."""
        if self.may_answer:
            error = ResourceLocked(reason)
            error.method_id = (0, 0)
            self.connection.on_error(self.number, error)

    def change(self, command: Command, then: Callable[[Applied], None]) -> None:
        """Ask the node for a change. The channel waits until it is made; `then` answers the client."""
        Asking(self, then).ask(command)

    # --- acknowledging ---

    def acked(self, delivery_tag: int, multiple: bool) -> int:
        if self.transaction is not None:
            self.note_settled(self.transaction, delivery_tag, multiple, None)
        else:
            self.settle(delivery_tag, multiple)
        return 0

    def settle(self, delivery_tag: int, multiple: bool) -> None:
        """Carry out an ack. `warren perf throughput` watches this."""
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
        """Deliver more if the limits of the whole channel allow it now."""
        if self.deliveries.rota is not None:
            self.deliveries.rota.touch()

    def release(self, entry: Entry) -> None:
        """An entry is acked: its queue forgets it, and its consumer may get another."""
        queue = entry.queue
        self.tally.acked += 1
        queue.settle(entry)
        if entry.consumer is not None:
            consumer = entry.consumer
            consumer.settled(entry)
        queue.touch()
        if self.events.acked and self.events.acking.is_next():
            self.events.emit(MessageAcked(queue.vhost, queue.name, entry.message))

    def reject(self, delivery_tag: int, *, multiple: bool, requeue: bool) -> None:
        if self.transaction is not None:
            self.note_settled(self.transaction, delivery_tag, multiple, requeue)
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
        """Return an entry to its queue, or remove it from there. `settled` says that the client asked for it,
        by reject or nack; else the entry returns because the channel ended or recovers.
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
        """Deliver an entry once more to the consumer that has it already."""
        entry.delivery_count += 1
        consumer.settled(entry)
        entry.queue.redelivered(entry)
        consumer.deliver(entry)

    def last_of_many(self, delivery_tag: int) -> int:
        """The last tag that an ack or nack with `multiple` settles. Delivery tag 0 stands for all."""
        if delivery_tag == 0:
            return self.deliveries.delivery_tag
        if not self.deliveries.is_outstanding(delivery_tag):
            raise unknown_delivery_tag(delivery_tag)
        return delivery_tag

    def note_settled(
        self, transaction: Transaction, delivery_tag: int, multiple: bool, fate: bool | None
    ) -> None:
        """Note an ack or a reject in the transaction, for when it is committed."""
        if delivery_tag in transaction.settled:
            raise unknown_delivery_tag(delivery_tag)
        if multiple:
            last_tag = self.last_of_many(delivery_tag)
            chores.do(self, transaction.settle_up_to(last_tag, fate, self.deliveries))
        elif self.deliveries.is_outstanding(delivery_tag):
            transaction.settle(delivery_tag, fate)
        else:
            raise unknown_delivery_tag(delivery_tag)

    # --- consumers ---

    def wake_consumers(self) -> None:
        """Limits have changed: have every queue that is consumed here deliver what it can."""
        for consumer in self.consumers.values():
            consumer.queue.touch()

    def queue_is_gone(self, consumer: ChannelConsumer) -> None:
        """The queue of this consumer was deleted. If this channel deletes it, the cancel notice follows
        delete-ok.
        """
        self.forget_consumer(consumer)
        if self.withheld is not None:
            self.withheld += self.cancel_notices(consumer)
        elif not self.discarding:
            self.reply(*self.cancel_notices(consumer))

    def queue_is_unavailable(self, consumer: ChannelConsumer, reason: str) -> None:
        """Nobody knows when the queue of this consumer can be used again. The client would wait in vain: it
        gets basic.cancel, or 405 if it does not understand that. What it has not acked it may ack still.
        """
        if self.connection.has_capability("consumer_cancel_notify"):
            self.queue_is_gone(consumer)
        else:
            self.lock_out(reason)

    def cancel_notices(self, *consumers: ChannelConsumer) -> list[Method]:
        """The basic.cancel for each consumer; none if the client does not understand it."""
        if not self.connection.has_capability("consumer_cancel_notify"):
            return []
        return [BasicCancel(consumer_tag=consumer.tag, no_wait=True) for consumer in consumers]

    def forget_consumer(self, consumer: ChannelConsumer) -> None:
        self.consumers.pop(consumer.tag, None)
        consumer.queue.remove_consumer(consumer)
        if self.deliveries.rota is not None:
            self.deliveries.rota.leave(consumer.queue)
            consumer.queue.touch()  # the queue may have other consumers on this channel
        if self.reply_consumer is consumer:
            self.reply_consumer = None
            close_reply_queue(self.vhost, consumer.queue)
        self.events.emit(ConsumerCancelled(self.vhost.name, consumer.queue.name, consumer.tag))

    def cancel(self, consumer: ChannelConsumer) -> None:
        self.forget_consumer(consumer)
        self.vhost.remove_if_abandoned(consumer.queue)

    # --- waiting ---

    def go_on(self) -> None:
        """End the channel's wait. Nothing happens if the channel has ended meanwhile."""
        if self.waiting:
            self.connection.go_on(self)

    def stop_waiting(self) -> None:
        self.waiting = False

    def listen_again(self) -> None:
        """Handle deferred frames, unless the channel has to wait for something else."""
        if self.held and not self.waiting:
            self.connection.go_on(self)

    # --- the end ---

    def reply(self, *methods: Method) -> None:
        for method in methods:
            self.output.method(self.number, method.encode())

    def reply_if_open(self, method: Method) -> None:
        """Reply after a while, in which the channel may have ended."""
        if self.may_answer:
            self.reply(method)

    @property
    def is_open(self) -> bool:
        return not self.discarding and self.connection.channels.get(self.number) is self

    @property
    def may_answer(self) -> bool:
        """Whether the client may still get an answer: not once its channel or connection is being closed."""
        return self.is_open and not self.connection.closing

    def fail(self, error: SoftError, method_id: tuple[int, int]) -> None:
        """Close the channel because of the client's mistake. Frames that are deferred or still come are
        dropped.
        """
        self.release_all()
        self.discard()
        class_id, method = method_id
        self.reply(
            ChannelClose(
                reply_code=error.code, reply_text=error.reply_text, class_id=class_id, method_id=method
            )
        )
        if self.deferred:  # the client's own channel.close may be among the deferred frames
            self.connection.go_on(self)

    def release_all(self, then: Callable[[], None] | None = None) -> None:
        """Stop consuming, and return all unacknowledged messages to their queues."""
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
    """A function that sends the answer when a change is made, unless the client wants none."""

    def reply(_applied: Applied) -> None:
        if not no_wait:
            channel.answer(answer)

    return reply


def is_much(work: int, queues: int) -> bool:
    """Whether a message that costs so much has to reach its queues over several turns."""
    return work > (WORK_AT_ONCE_MAX if queues <= QUEUES_A_STEP else WIDE_WORK_AT_ONCE_MAX)


def unknown_delivery_tag(delivery_tag: int) -> PreconditionFailed:
    error = PreconditionFailed(f"unknown delivery tag {delivery_tag}")
    error.method_id = BasicAck.id
    return error


def check_expiration(value: bytes) -> None:
    text = value.decode("utf-8", "replace")
    if not value.isdigit() or int(value) > TIME_MS_MAX:
        raise PreconditionFailed(f"invalid expiration '{text}': expected a whole number of milliseconds")
