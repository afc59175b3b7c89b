"""Carries messages from a source to a destination, both of them links.

A message is published there as soon as the destination takes it, in the order in which it came. What happens
at the source depends on the ack mode:

    on-confirm    acked when the destination has confirmed it: nothing is lost, whatever breaks
    on-publish    acked when it was handed to the destination's socket
    no-ack        never outstanding: what is on its way is lost when something breaks

With on-confirm, acks are cumulative: up to the first message that the destination has not confirmed yet. A
message that the destination refuses goes back to the source's queue, and comes again at once. So the pump
rests for a moment before it publishes again: a full queue at the destination must not keep two brokers busy.

A pump that is to end is drained first: it takes and publishes nothing more, and acks what is confirmed within
a limit of time. So a clean end repeats nothing, unless the destination is slow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeAlias

from warren.amqp.errors import AmqpError
from warren.amqp.methods import BasicNack
from warren.broker.message import Message
from warren.client.errors import ClientError
from warren.client.frames import CHANNEL
from warren.relay.link import RelayLink

Rewrite: TypeAlias = Callable[[Message, bool], tuple[bytes, bytes] | None]
"""From a message, and whether it was delivered before: the basic.publish that goes out, and the properties,
as they are on the wire. None for a message that goes no further: it is acked at the source.
"""

WAITING_BYTES_MAX = 16 * 1024 * 1024
"""If so much waits for the destination, the source is not read."""

MESSAGE_BYTES = 200  # about what a message takes besides its body and properties
UNCONFIRMED_MAX = 100_000
"""How many messages may wait for their confirms, also if the source sets no limit (a prefetch of 0)."""

DRAIN_SECONDS_MAX = 5.0

REST_SECONDS = 0.1
ACK_MODES = ON_CONFIRM, ON_PUBLISH, NO_ACK = "on-confirm", "on-publish", "no-ack"


class Pump:
    def __init__(
        self,
        source: RelayLink,
        destination: RelayLink,
        rewrite: Rewrite,
        *,
        ack_mode: str,
        limit: int | None = None,
    ) -> None:
        self.source = source
        self.destination = destination
        self.rewrite = rewrite
        self.ack_mode = ack_mode
        self.limit = limit  # how many messages to carry; None for all that come
        self.waiting: deque[tuple[int, bool, Message]] = deque()  # deliveries, until there is room
        self.counted = 0  # how many of these, from the first on, were not published as soon as they came
        self.waiting_bytes = 0  # how much memory those take
        self.published = 0  # messages that were handed to the destination: the number of the last one
        self.settled = 0  # of these, those that are done with
        self.refused = 0  # of these, those that the destination did not take
        self.unconfirmed: deque[tuple[int, int]] = deque()  # numbers of messages, and their delivery tags
        self.confirmed_early: set[int] = set()  # numbers of those that were confirmed before an earlier one
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # the limit is reached
        self.is_draining = False  # whether it is about to end
        self.drained: asyncio.Future[None] | None = None  # while somebody waits for the last confirm
        self.rest: asyncio.TimerHandle | None = None  # while nothing is published since a message was refused

    def __repr__(self) -> str:
        return f"<Pump: {self.published} published, {self.settled} settled>"

    def start(self) -> None:
        self._see_whether_done()
        self.destination.attach(DestinationOwner(self))
        self.source.attach(SourceOwner(self))

    # --- from the source ---

    def take(self, deliveries: list[tuple[int, bool, Message]]) -> None:
        """`benchmarks/relays.py` watches this."""
        if self.is_draining:
            return  # the source's broker has them still
        self.waiting.extend(deliveries)
        self.publish()

    def publish(self) -> None:
        """Publish what waits, as far as the destination takes it."""
        output, begun = self.destination.output, self.published
        while self.waiting and self.rest is None and self.destination.may_publish and self._is_wanted():
            tag, redelivered, message = self.waiting.popleft()
            if self.counted:
                self.counted -= 1
                self.waiting_bytes -= size_of(message)
            try:
                rewritten = self.rewrite(message, redelivered)
            except (AmqpError, ValueError) as error:
                self.source.end(ClientError(f"a message has properties that nobody can read: {error}"))
                break
            if rewritten is None:
                self._drop(tag)
                continue
            output.method(CHANNEL, rewritten[0])
            output.content(CHANNEL, rewritten[1], message.body)
            self.published += 1
            if self.ack_mode != NO_ACK:
                self.unconfirmed.append((self.published, tag))
            if not output.has_room():
                self.destination.flush()
        self.destination.flush()
        if self.published > begun and self.ack_mode != ON_CONFIRM:
            self._settle_published()
        self._see_pressure()

    def _drop(self, tag: int) -> None:
        """A message goes no further. Acks for others may come later; this one stands for itself."""
        if self.ack_mode != NO_ACK:
            self.source.output.confirm(CHANNEL, tag, False)
            self.source.flush()

    def _is_wanted(self) -> bool:
        if len(self.unconfirmed) >= UNCONFIRMED_MAX:
            return False
        return self.limit is None or self.published < self.limit

    def _settle_published(self) -> None:
        """Without confirms a message is done with when it was handed over."""
        if self.unconfirmed:
            self._ack(self.unconfirmed[-1][1])
            self.unconfirmed.clear()
        self.settled = self.published
        self._see_whether_done()

    def _see_pressure(self) -> None:
        if self.is_draining:
            return
        for _tag, _redelivered, message in islice(self.waiting, self.counted, None):
            self.waiting_bytes += size_of(message)
        self.counted = len(self.waiting)
        if self.waiting_bytes > WAITING_BYTES_MAX:
            self.source.pause()
        elif self.waiting_bytes <= WAITING_BYTES_MAX // 2:
            self.source.resume()

    # --- from the destination ---

    def confirm(self, confirms: list[tuple[int, bool, bool]]) -> None:
        for number, multiple, is_ack in confirms:
            if is_ack:
                self._confirmed(number, multiple=multiple)
            else:
                self._refused(number, multiple=multiple)
        was_full = len(self.unconfirmed) >= UNCONFIRMED_MAX
        self._ack_confirmed()
        self._see_whether_done()
        self._see_whether_drained()
        if was_full:
            self.publish()

    def _confirmed(self, number: int, *, multiple: bool) -> None:
        if not multiple:
            self.confirmed_early.add(number)
            return
        self.confirmed_early.update(each for each, _ in self._up_to(number))

    def _up_to(self, number: int) -> list[tuple[int, int]]:
        found = []
        for each in self.unconfirmed:
            if each[0] > number:
                break
            found.append(each)
        return found

    def _refused(self, number: int, *, multiple: bool) -> None:
        """The source's broker puts these messages back into their queue."""
        wanted = {each for each, _ in self._up_to(number)} if multiple else {number}
        wanted -= self.confirmed_early
        kept: deque[tuple[int, int]] = deque()
        for each, tag in self.unconfirmed:
            if each in wanted:
                nack = BasicNack(delivery_tag=tag, requeue=True)
                self.source.output.method(CHANNEL, nack.encode())
                self.refused += 1
                self.published_again(each)
            else:
                kept.append((each, tag))
        self.unconfirmed = kept
        if self.rest is None:
            self.rest = asyncio.get_running_loop().call_later(REST_SECONDS, self.end_rest)

    def end_rest(self) -> None:
        """If the pump has ended meanwhile, its destination takes nothing."""
        self.rest = None
        self.publish()

    def published_again(self, _number: int) -> None:
        """A refused message will come once more: it counts neither as carried nor towards the limit."""
        if self.limit is not None:
            self.limit += 1
        self.settled += 1

    def _ack_confirmed(self) -> None:
        """Ack all up to the first message that is not confirmed."""
        last_tag = None
        while self.unconfirmed and self.unconfirmed[0][0] in self.confirmed_early:
            number, last_tag = self.unconfirmed.popleft()
            self.confirmed_early.discard(number)
            self.settled += 1
        if last_tag is not None:
            self._ack(last_tag)
        else:
            self.source.flush()

    def _ack(self, tag: int) -> None:
        self.source.output.confirm(CHANNEL, tag, True)
        self.source.flush()

    def _see_whether_done(self) -> None:
        if self.limit is not None and self.settled >= self.limit and not self.done.done():
            self.done.set_result(None)

    # --- the end ---

    def stop_taking(self) -> None:
        """Take and publish nothing more. The source's broker still has what was not published."""
        self.is_draining = True
        self.source.pause()
        self.waiting.clear()
        self.counted = self.waiting_bytes = 0

    async def drain(self) -> None:
        """Take nothing more, and wait for the confirms of what was published, if they come soon."""
        self.stop_taking()
        if self.ack_mode != ON_CONFIRM or not self.unconfirmed:
            return
        self.drained = asyncio.get_running_loop().create_future()
        ends: set[asyncio.Future[Any]] = {self.drained, self.source.ended, self.destination.ended}
        await asyncio.wait(ends, timeout=DRAIN_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)

    def _see_whether_drained(self) -> None:
        if self.drained is not None and not self.unconfirmed and not self.drained.done():
            self.drained.set_result(None)

    @property
    def carried(self) -> int:
        """How many messages the destination has."""
        return self.settled - self.refused


def size_of(message: Message) -> int:
    """How much memory a message takes that waits."""
    return len(message.body) + len(message.properties) + MESSAGE_BYTES


class SourceOwner:
    """What the pump does with what its source's link tells."""

    def __init__(self, pump: Pump) -> None:
        self.pump = pump

    def delivered(self, deliveries: list[tuple[int, bool, Message]]) -> None:
        self.pump.take(deliveries)

    def confirmed(self, confirms: list[tuple[int, bool, bool]]) -> None:
        raise AssertionError("nothing is published to a source")

    def room_changed(self) -> None:
        """Acks are small: they do not wait for room."""


class DestinationOwner:
    """What the pump does with what its destination's link tells."""

    def __init__(self, pump: Pump) -> None:
        self.pump = pump

    def delivered(self, deliveries: list[tuple[int, bool, Message]]) -> None:
        raise AssertionError("nothing is consumed from a destination")

    def confirmed(self, confirms: list[tuple[int, bool, bool]]) -> None:
        self.pump.confirm(confirms)

    def room_changed(self) -> None:
        self.pump.publish()
