"""A connection: its handshake, its channels, and its end.

It reads frames from the bytes that it is fed and writes through a `Link`; it knows no socket and no clock.
`on_error` is the one place where an exception becomes channel.close or connection.close.

A connection that gets too far ahead is not read for a while. `not_reading_because` has the reasons; it is
read again when the last of them is gone. Deliveries stop and start in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, cast

from warren.amqp.errors import (
    AmqpError,
    ChannelFault,
    CommandInvalid,
    ConnectionForced,
    InternalError,
    NotAllowed,
    NotFound,
    SoftError,
)
from warren.amqp.methods import (
    METHOD_ID,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    Method,
    decode_method,
)
from warren.amqp.reader import FrameReader, ReadBuffer
from warren.amqp.table import Table
from warren.amqp.writer import Output
from warren.broker import events
from warren.broker.access import Access, User
from warren.broker.commands import DeleteQueue
from warren.broker.flow import QueueFlow
from warren.broker.history import History
from warren.broker.limits import is_reached
from warren.broker.login import Identity
from warren.broker.node import Node
from warren.broker.queue import Hold, Queue
from warren.broker.safety import Safety
from warren.broker.tally import FIGURES, Bytes, Tally
from warren.broker.timers import Timer
from warren.broker.turns import SHARE_MAX
from warren.broker.vhost import Vhost
from warren.session import (
    basic_methods,
    channel_methods,
    exchange_methods,
    handshake,
    queue_methods,
)
from warren.session.alarm import block, follow_alarm
from warren.session.asking import look_again
from warren.session.channel import Channel
from warren.session.consumer_timeout import check_timeout
from warren.session.handshake import PROTOCOL_HEADER
from warren.session.liveness import Liveness
from warren.session.meter import Meter
from warren.session.peer import Peer
from warren.session.state import ENDING, TRANSITIONS, State

OUTPUT_BYTES_MAX = 16 * 1024 * 1024  # a client that does not take its answers is not read beyond this
RELEASE_WORK = 30  # to end a channel with its consumers
EXPIRY_CHECK_SECONDS_MAX = 60.0  # the time of day may be set while a token is valid
FEW_BYTES = 4096  # of one read: to begin a round takes longer than to deliver what such a read brings
DEFERRED_BYTES_MAX = 1024 * 1024  # of all waiting channels together, plus the frames of one read

TURN = "turn"  # a reason not to read: frames that were read before wait for a turn to come

CHANNEL_METHODS: dict[type[Method], Callable[[Channel, Method], None]] = {
    **channel_methods.HANDLERS,
    **exchange_methods.HANDLERS,
    **queue_methods.HANDLERS,
    **basic_methods.HANDLERS,
}


class Link(Protocol):
    """The way to the client, such as a socket."""

    def send(self, chunks: Sequence[bytes | memoryview]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def unsent_bytes(self) -> int: ...

    def close(self) -> None:
        """Close once all that was sent has gone out."""

    def reset(self) -> None:
        """Close at once, and throw away what has not gone out."""


class Connection(FrameReader):
    def __init__(self, buffer: ReadBuffer, node: Node, link: Link, peer: Peer) -> None:
        self.node = node
        self.id = node.new_client_id()  # names this connection as the owner of exclusive queues
        self.link = link
        self.peer = peer  # the client's address, and how the connection is encrypted
        self.name = peer.name  # for events, and so for the log and the HTTP API
        self.connected_ms = node.clock.refresh()  # when the client connected, since 1970
        self.mechanism = ""  # by which the client authenticates, from connection.start-ok on
        self.state = State.AWAITING_HEADER
        self.output = Output(node.dirty_outputs, self)  # frames to be sent at the end of the turn
        self.liveness = Liveness(node.world.now())  # heartbeats and deadlines
        self.client_properties: Table = {}  # from connection.start-ok
        self.user_name = ""  # as the client gives it, and after the login as the authenticator does
        self.vhost_name = ""  # empty until connection.open, as `vhost` and `access` are unset until then
        self.channel_max = node.limits.channel_max  # how many channels may be open at a time
        self.channels_that_published: list[Channel] = []  # since the last end of a batch
        self.held_by: QueueFlow | None = None  # the queue that cannot keep up with this publisher
        self.budget = node.turns.budget  # of work in the present turn
        self.blocking = False  # whether an alarm blocks this connection once it publishes
        self.blocked = False  # whether it has published during the alarm, and is not read
        self.in_line = False  # whether it waits for its turn, to go on with frames that were read
        self.not_reading_because: set[str] = set()  # reasons; empty while the connection is read
        self.not_delivering_because: set[str] = set()  # reasons; empty while consumers get deliveries
        self.meter: Meter | None = None  # if the user's rates are limited
        self.closed_tally = Tally()  # counts of channels that are closed
        self.history: History | None = None  # samples of the connection's counts
        self.handling: tuple[int, int] | None = None  # the method in hand; an error names it
        self.handled = (0, 0)  # the method before that, for the log of slow turns
        self.expiry: Timer | None = None  # closes the connection when the client's token expires
        self.close_reason = "client unexpectedly closed the connection"  # if no better reason is known
        node.client_began(self)

    def __repr__(self) -> str:
        return f"<Connection {self.name!r}: {self.state}>"

    def become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} cannot become {state}"
        self.state = state

    # --- frames ---

    def on_greeting(self, greeting: bytes) -> int:
        if greeting == PROTOCOL_HEADER:
            handshake.start(self)
        else:
            self.link.send([PROTOCOL_HEADER])
            self.drop("the client speaks another protocol")
        return 0

    def on_method(self, number: int, payload: bytes) -> int:
        self.handling = cast("tuple[int, int]", METHOD_ID.unpack_from(payload))
        if number == 0:
            self._connection_method(decode_method(payload))
        else:
            self._channel_method(number, payload)
        self.handled, self.handling = self.handling, None
        return 0

    def _connection_method(self, method: Method) -> None:
        if isinstance(method, ConnectionClose) and self.state is not State.CLOSED:
            self.close_reason = f"client closed: {method.reply_code} {method.reply_text}"
            self.closing = True
            self._release_all(self._closed_by_client)
        elif self.state is State.CLOSING:
            if isinstance(method, ConnectionCloseOk):
                self.drop(self.close_reason)
        elif self.state is not State.CLOSED:
            handshake.handle(self, method)

    def _closed_by_client(self) -> None:
        """Say close-ok, now that all that lived with the connection is gone: clients rely on that order."""
        if self.state is not State.CLOSED:
            self.send(ConnectionCloseOk())
            self.flush()
            self.drop(self.close_reason)

    def _channel_method(self, number: int, payload: bytes) -> None:
        if self.state is not State.OPEN:
            raise ChannelFault(f"method on channel {number} before connection.open")
        channel = cast("Channel | None", self.channels.get(number))
        if channel is not None and channel.discarding:
            self._closing_channel_method(channel)
            return
        method = decode_method(payload)
        if isinstance(method, ChannelOpen):
            self._open_channel(number, channel)
        elif channel is None:
            if not isinstance(method, ChannelCloseOk):
                raise ChannelFault("expected 'channel.open'")
        elif isinstance(method, ChannelClose):
            reason = f"{method.reply_code} {method.reply_text}"
            channel.release_all(lambda: self._channel_closed(channel, reason))
        else:
            handler = CHANNEL_METHODS.get(type(method))
            if handler is None:
                raise CommandInvalid(f"{method.name} is not for a client to send")
            self.node.drain()
            try:
                handler(channel, method)
            except NotFound as error:
                look_again(channel, partial(handler, channel, method), error)
            if self.output.pending_bytes > OUTPUT_BYTES_MAX:
                self.halt("output")  # the client has to take these answers before it may ask for more

    def _closing_channel_method(self, channel: Channel) -> None:
        """The broker has closed this channel: only channel.close and close-ok still count."""
        if self.handling == ChannelClose.id:
            channel.reply(ChannelCloseOk())
        if self.handling in {ChannelClose.id, ChannelCloseOk.id}:
            self._forget_channel(channel)

    def _open_channel(self, number: int, channel: Channel | None) -> None:
        if channel is not None:
            raise ChannelFault("second 'channel.open' seen")
        if len(self.channels) >= self.channel_max:  # a limit of how many, not of the number, as in RabbitMQ
            raise NotAllowed(
                f"number of channels opened ({len(self.channels)}) has reached "
                f"the negotiated channel_max ({self.channel_max})"
            )
        user = self.access.user
        if is_reached(user.limits.max_channels, user.channels):
            raise NotAllowed(
                f"number of channels opened for user '{user.name}' has reached the maximum allowed "
                f"user limit of ({user.limits.max_channels})"
            )
        user.channels += 1
        self.add_channel(Channel(number, self))
        self.node.events.emit(events.ChannelOpened(self.name, number))
        self.output.method(number, ChannelOpenOk().encode())

    def _channel_closed(self, channel: Channel, reason: str) -> None:
        """A channel that its client closed has given back all its messages: say close-ok."""
        if channel.is_open:
            self._end_channel(channel, reason)
            self.output.method(channel.number, ChannelCloseOk().encode())

    def _end_channel(self, channel: Channel, reason: str) -> None:
        self._forget_channel(channel)
        self.node.events.emit(events.ChannelClosed(self.name, channel.number, reason))

    def _forget_channel(self, channel: Channel) -> None:
        if self.channels.get(channel.number) is not channel:
            return
        self.closed_tally.add(channel.tally)
        self.remove_channel(channel.number)
        self.access.user.channels -= 1

    def on_error(self, number: int, error: Exception) -> int:
        method_id = self._method_at_fault(error)
        self.handling = None
        if not isinstance(error, AmqpError):
            self.node.events.emit(events.Failure(self.name, error))
            error = InternalError("the broker failed; its log says why")
        if self.state in ENDING:
            return 0
        channel = cast("Channel | None", self.channels.get(number))
        if isinstance(error, SoftError) and channel is not None:
            channel.fail(error, method_id)
            self.node.events.emit(events.ChannelClosed(self.name, number, error.reply_text))
        else:
            self.fail(error, method_id)
        return 0

    def _method_at_fault(self, error: Exception) -> tuple[int, int]:
        """The method in hand. Without one, the method that the error names, or else basic.publish."""
        if self.handling is not None:
            return self.handling
        known = error.method_id if isinstance(error, AmqpError) else None
        return BasicPublish.id if known is None else known

    def on_batch_begin(self) -> int:
        self.node.clock.refresh()
        self.node.turns.begin_share()
        return 0

    def on_batch_end(self) -> int:
        """Confirm, deliver, and hold this connection back if it is too fast.

        `warren perf throughput` watches this, and `benchmarks/flood.py` that it starves nobody.
        """
        channels = self.channels_that_published[:]
        self.channels_that_published.clear()
        for channel in channels:
            channel.has_published = False
            channel.confirms.end_batch()
        if channels and self.at > FEW_BYTES:
            self.node.store.begin_round()  # the disk works while consumers are served
        self.node.end_turn()
        if channels and self.at <= FEW_BYTES:
            self.node.store.begin_round()  # consumers of few messages are served sooner than a round begins
        for channel in channels:
            self._yield_to_consumers(channel.take_reached())
        self.node.turns.end_share()
        if channels and self.state is State.OPEN:
            self._yield_to_disk(channels)
        if channels and self.meter is not None:
            self.meter.charge_published()
        return 0

    # --- out ---

    def send(self, method: Method) -> None:
        self.output.method(0, method.encode())

    def flush(self) -> None:
        """Write all output that this turn has gathered. `warren perf throughput` watches this."""
        chunks = self.output.take()
        if self.state is State.CLOSED:
            return
        if chunks:
            self.liveness.sent_at = self.node.world.now()
            self.link.send(chunks)
            if self.link.unsent_bytes() > OUTPUT_BYTES_MAX:
                self.stop_reading("output")
            elif "output" in self.not_reading_because and not self.output.congested:
                self.node.world.call_soon(self._listen_again)
            if self.meter is not None:
                self.meter.charge_sent(sum(map(len, chunks)))
        if self.output.starved and not self.output.congested:
            self.output.starved = False
            self.node.world.call_soon(self._go_on_delivering)

    def congestion_changed(self, *, congested: bool) -> None:
        """The socket's buffer is full, or has room again."""
        if congested:
            self.stop_delivering("socket")
        else:
            self.start_delivering("socket")

    def stop_delivering(self, reason: str) -> None:
        self.not_delivering_because.add(reason)
        self.output.congested = True

    def start_delivering(self, reason: str) -> None:
        self.not_delivering_because.discard(reason)
        if not self.not_delivering_because:
            self.output.congested = False
            self._listen_again()
            self._go_on_delivering()

    def _listen_again(self) -> None:
        """The client has taken its answers, and may ask for more."""
        if self.state is State.OPEN:
            self.start_reading("output")

    def _go_on_delivering(self) -> None:
        for channel in self.open_channels():
            channel.wake_consumers()
        self.node.end_turn()

    def open_channels(self) -> list[Channel]:
        return cast("list[Channel]", list(self.channels.values()))

    def published_total(self) -> int:
        """How many messages were published, including those on channels that are closed."""
        return self.closed_tally.published + sum(channel.tally.published for channel in self.open_channels())

    def delivered_total(self) -> int:
        return self.closed_tally.delivered + sum(channel.tally.delivered for channel in self.open_channels())

    def bytes(self) -> Bytes:
        return Bytes(self.received_bytes, self.output.sent_bytes, self.reads, self.output.writes)

    def add_octets_to_vhost(self) -> None:
        """Add what was received and sent since the last sample. To be called when the next one is about to
        be taken, and at the end.
        """
        sampled = (0, 0) if self.history is None else self.history.values[len(FIGURES) :]
        octets: list[int] = self.vhost.octets
        octets[0] += self.received_bytes - sampled[0]
        octets[1] += self.output.sent_bytes - sampled[1]

    def tally(self) -> Tally:
        """Counts of all channels, including those that are closed."""
        tally = Tally()
        tally.add(self.closed_tally)
        for channel in self.open_channels():
            tally.add(channel.tally)
        return tally

    # --- reading less, or not at all ---

    def stop_reading(self, reason: str) -> None:
        if not self.not_reading_because:
            self.link.pause_reading()
        self.not_reading_because.add(reason)

    def start_reading(self, reason: str) -> None:
        """Drop a reason not to read. If it was the last, frames that were read before come first, when it is
        this connection's turn.
        """
        if reason in self.not_reading_because:
            self.not_reading_because.discard(reason)
            if self.not_reading_because == {TURN}:
                self._stand_in_line()
            elif not self.not_reading_because and self.state is not State.CLOSED:
                self.liveness.heard_at = self.node.world.now()
                self.link.resume_reading()

    def halt(self, reason: str) -> None:
        """Stop between two frames that were read already, until `start_reading` with the same reason."""
        self.suspended = True
        self.stop_reading(reason)
        self.stop_reading(TURN)

    def on_tired(self) -> int:
        """Go on with the frames that were read when the others in line have had their share."""
        self.stop_reading(TURN)
        self._stand_in_line()
        return 0

    def _stand_in_line(self) -> None:
        if not self.in_line:
            self.in_line = True
            self.node.turns.later(self._take_turn)

    def _take_turn(self) -> None:
        self.in_line = False
        if self.state is not State.CLOSED and self.not_reading_because == {TURN}:
            self.resume()
            if not self.suspended:
                self.start_reading(TURN)

    def on_deferred(self) -> int:
        """Do not read while the waiting channels have too many deferred frames."""
        if self.deferred_bytes > DEFERRED_BYTES_MAX:
            self.stop_reading("waiting")
        else:
            self.start_reading("waiting")
        return 0

    def on_blocked_publish(self) -> int:
        block(self)
        return 0

    def _yield_to_consumers(self, queues: Iterable[Queue]) -> None:
        """If a queue cannot keep up with this connection, do not read the connection for a while."""
        for queue in queues:
            if self.held_by is None and self.state is State.OPEN and queue.flow.pushes_back(queue):
                self.held_by = queue.flow
                self.stop_reading("flow")
                queue.flow.hold_back(self, queue)

    def _yield_to_disk(self, channels: list[Channel]) -> None:
        """If more was published than the disk has taken, do not read until the disk has caught up."""
        definitions = self.node.safety
        if definitions.behind:
            self._wait_for(definitions)
            return
        for channel in channels:
            safety = channel.confirms.safety
            if safety is not None and safety is not definitions and safety.behind:
                self._wait_for(safety)
                return

    def _wait_for(self, safety: Safety) -> None:
        self.stop_reading("disk")
        safety.when_ready(lambda: self.start_reading("disk"))

    def let_go(self) -> None:
        self.held_by = None
        self.start_reading("flow")

    def alarm_changed(self) -> None:
        follow_alarm(self)

    # --- what the client may do ---

    def has_capability(self, name: str) -> bool:
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def opened(self, vhost: Vhost, access: Access) -> None:
        self.vhost = vhost
        self.vhost_name = vhost.name
        self.access = access
        vhost.connections += 1
        access.user.connections += 1
        self.become(State.OPEN)
        self._expect_expiry()
        self.rates_changed(access.user)
        self.alarm_changed()
        self.node.events.emit(events.ConnectionOpened(self.name, self.user_name, vhost.name))

    def renew(self, identity: Identity) -> None:
        """The client has brought a new token: from now on it may do what that one says."""
        before, user = self.access.user, identity.user
        before.connections, user.connections = before.connections - 1, user.connections + 1
        before.channels, user.channels = (
            before.channels - len(self.channels),
            user.channels + len(self.channels),
        )
        self.identity, self.access.user = identity, user
        self.forget_permissions()
        self.vhost.version.bump()
        self._expect_expiry()

    def _expect_expiry(self) -> None:
        """Close the connection when the client's token expires."""
        self._forget_expiry()
        expires_ms = self.identity.expires_ms
        if expires_ms is not None:
            left_seconds = max(expires_ms - self.node.world.time_ms(), 0) / 1000
            self.expiry = self.node.world.call_later(
                min(left_seconds, EXPIRY_CHECK_SECONDS_MAX), self._check_expiry
            )

    def _check_expiry(self) -> None:
        """The time of day may have been set meanwhile, so look again."""
        expires_ms = self.identity.expires_ms
        if expires_ms is not None and self.node.world.time_ms() >= expires_ms:
            self.force_close("credential expired")
        else:
            self._expect_expiry()

    def _forget_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None

    def rates_changed(self, user: User) -> None:
        """This user's rate limits changed."""
        if self.state is State.OPEN and self.access.user is user:
            if self.meter is not None:
                self.meter.end()
            if user.publishing is not None or user.consuming is not None:
                self.meter = Meter(self, user.publishing, user.consuming)

    def safety_ended(self, safety: Safety, reason: str) -> None:
        for channel in self.open_channels():
            if channel.waits_for(safety):
                channel.lock_out(reason)
        self.start_reading("disk")  # it may have waited for this safety

    def close_late_channels(self, now_ms: int, timeout_ms: int) -> Iterator[int]:
        for channel in self.open_channels():
            yield from check_timeout(channel, now_ms, timeout_ms)

    def forget_permissions(self) -> None:
        self.access.forget()
        for channel in self.open_channels():
            channel.properties_changed = True

    # --- the end ---

    def stop_listening(self) -> None:
        if self.state not in ENDING:
            self.halt("closing")

    def force_close(self, reason: str) -> None:
        """Close the connection because an operator wants it, or the broker ends."""
        if self.state not in ENDING:
            self.fail(ConnectionForced(reason), (0, 0))
            self.node.end_turn()

    def fail(self, error: AmqpError, method_id: tuple[int, int]) -> None:
        """Send connection.close. The client has as long for its close-ok as `Liveness` allows."""
        self.close_reason = error.reply_text
        self._release_all()
        class_id, method = method_id
        self.send(
            ConnectionClose(
                reply_code=error.code, reply_text=error.reply_text, class_id=class_id, method_id=method
            )
        )
        self.closing = True
        self.suspended = False
        self.become(State.CLOSING)
        for reason in self.not_reading_because - {TURN}:
            self.start_reading(reason)

    def drop(self, reason: str) -> None:
        """Close the socket once the client has got all that was sent."""
        self.close_reason = reason
        self.link.close()
        self.lost()

    def give_up(self, reason: str) -> None:
        """Reset the socket of a client that does not answer any more."""
        self.close_reason = reason
        self.link.reset()
        self.lost()

    def lost(self) -> None:
        """The socket is gone."""
        if self.state is State.CLOSED:
            return
        was_open = bool(self.vhost_name)
        self.node.clock.refresh()
        self._release_all()
        self.become(State.CLOSED)
        self._forget_expiry()
        self.meter = None
        self.closing = True
        self.output.closed = True
        self.output.owner = None
        self.node.client_ended(self)
        if was_open:
            self.node.gone.bytes.add(self.bytes())
            self.add_octets_to_vhost()
            self.vhost.connections -= 1
            self.access.user.connections -= 1
            self.node.events.emit(events.ConnectionClosed(self.name, self.close_reason))
        self.node.end_turn()

    def _release_all(self, then: Callable[[], None] | None = None) -> None:
        """End all that lives with the connection: its channels, its exclusive queues, a queue's hold on it.
        Call `then` when all of it has ended, perhaps some turns later.
        """
        self.drop_all_deferred()
        channels = self.open_channels()
        queues: set[Queue] = set()
        for channel in channels:
            channel.deliveries.active = False
            queues |= channel.deliveries.queues_up_to(channel.deliveries.delivery_tag)
        if self.held_by is not None:
            self.held_by.forget(self)
        self.node.turns.spread(self._release(channels, Hold(queues)), then)

    def _exclusive_queues(self) -> list[str]:
        """The names of the queues that live with this connection."""
        return list(self.vhost.exclusive_queues.get(self.id, ())) if self.vhost_name else []

    def _release(self, channels: list[Channel], hold: Hold) -> Iterator[int]:
        try:
            for channel in channels:
                if channel.discarding:
                    self._forget_channel(channel)
                elif channel.is_open:
                    channel.release_all()
                    self._end_channel(channel, self.close_reason)
                yield RELEASE_WORK
            for name in self._exclusive_queues():
                self.vhost.ask_for(DeleteQueue(vhost=self.vhost_name, name=name))
                yield 0  # the node has charged the turn's budget for the change
            while any(channel.chores is not None for channel in channels):
                yield SHARE_MAX
        finally:
            hold.end()


def connections_of(node: Node) -> list[Connection]:
    """All connections of a node: each of its clients is one."""
    return cast("list[Connection]", list(node.clients.values()))
