"""A queue with consumers on several channels against a list model.

The model knows the ready positions in order, who consumes, and what is out with whom. Every delivery is
looked at as it happens: it must be the first that is ready, and go to a consumer that can take it when none
of a higher priority can. Most of what waits is packed, some with bodies too large for that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.fakes import FakeWorld, make_node
from tests.support.queues import classic
from warren.amqp.writer import Output
from warren.broker.client import Origin
from warren.broker.commands import DeclareQueue
from warren.broker.entry import Entry
from warren.broker.events import MessageDelivered
from warren.broker.making import make_queue
from warren.broker.message import Message
from warren.session.consumer import ChannelConsumer
from warren.session.deliveries import Deliveries

if TYPE_CHECKING:
    from warren.session.channel import Channel


@dataclass
class FakeChannel:
    """What is out on it, by delivery tag: the position and the consumer."""

    deliveries: Deliveries
    out: dict[int, tuple[int, str]] = field(default_factory=dict)

    @property
    def counted(self) -> int:
        """What a consumer has, not what was got, which has no consumer."""
        return sum(bool(name) for _, name in self.out.values())


@dataclass
class Member:
    """A consumer as the model sees it."""

    consumer: ChannelConsumer
    channel: FakeChannel
    unacked: int = 0

    @property
    def can_take(self) -> bool:
        consumer, limit = self.consumer, self.channel.deliveries.prefetch_count
        if not consumer.no_ack and consumer.prefetch_count and self.unacked >= consumer.prefetch_count:
            return False
        return not limit or self.channel.counted < limit

    @property
    def is_unlimited(self) -> bool:
        consumer = self.consumer
        has_own_limit = bool(consumer.prefetch_count) and not consumer.no_ack
        return not has_own_limit and not self.channel.deliveries.prefetch_count


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        node = make_node(FakeWorld())
        node.events.subscribe(MessageDelivered, self.delivered)
        self.touched = node.touched_queues
        self.queue = classic(make_queue(node, DeclareQueue(vhost="/", name="q")))
        self.queue.lane.ready_max = 4  # so that many wait packed
        self.channels = [self.make_channel(limit) for limit in (0, 0, 4)]
        self.members: dict[str, Member] = {}
        self.ready: list[int] = []
        self.returned: set[int] = set()
        self.done: set[int] = set()
        self.published = self.named = 0
        self.served: Counter[str] = Counter()

    def make_channel(self, limit: int) -> FakeChannel:
        deliveries = Deliveries(Output([], None), 1)
        deliveries.limit(limit, 0, self.touched)
        return FakeChannel(deliveries)

    # --- the end of a turn ---

    def drain(self) -> None:
        self.served.clear()
        while self.touched:
            self.touched.pop().drain()
        assert not self.errors, self.errors
        for channel in self.channels:
            channel.deliveries.output.take()
        self.check_fairness()

    def delivered(self, event: MessageDelivered) -> None:
        position, name = int(event.message.body), event.consumer_tag
        assert position == self.ready.pop(0)
        assert event.redelivered is (position in self.returned)
        member = self.members[name]
        assert member.can_take
        better = [m for m in self.members.values() if m.consumer.priority > member.consumer.priority]
        assert not any(other.can_take for other in better)
        self.served[name] += 1
        if member.consumer.no_ack:
            self.done.add(position)
        else:
            member.unacked += 1
            member.channel.out[event.delivery_tag] = (position, name)

    def check_fairness(self) -> None:
        """Of consumers that can always take one more, none gets two more than another in one turn."""
        for priority in {member.consumer.priority for member in self.members.values()}:
            counts = [
                self.served[name]
                for name, member in self.members.items()
                if member.consumer.priority == priority and member.is_unlimited
            ]
            assert not counts or max(counts) - min(counts) <= 1

    # --- what may happen ---

    @rule(count=st.integers(1, 10))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.published += 1
            body = (b"%d" % self.published).ljust(300 * (self.published % 3))
            self.queue.publish(Message(b"\0", b"\x01q", b"\0\0", body, False))
            self.ready.append(self.published)
        self.drain()

    @precondition(lambda self: len(self.members) < 6)
    @rule(
        number=st.integers(0, 2),
        priority=st.sampled_from([0, 0, 5]),
        prefetch=st.integers(0, 3),
        no_ack=st.sampled_from([False, False, True]),
    )
    def consume(self, number: int, priority: int, prefetch: int, no_ack: bool) -> None:
        self.named += 1
        consumer = ChannelConsumer(
            tag=f"c{self.named}",
            queue=self.queue,
            channel=cast("Channel", None),
            origin=Origin("client", 1, "guest"),
            view=None,
            deliveries=self.channels[number].deliveries,
            no_ack=no_ack,
            exclusive=False,
            priority=priority,
            arguments={},
            prefetch_count=prefetch,
            prefetch_size=0,
        )
        self.members[consumer.tag] = Member(consumer, self.channels[number])
        self.queue.add_consumer(consumer)
        self.drain()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """What is out with it stays out."""
        name = data.draw(st.sampled_from(sorted(self.members)))
        self.remove(name)
        self.drain()

    @precondition(lambda self: any(channel.out for channel in self.channels))
    @rule(data=st.data(), requeue=st.booleans(), multiple=st.booleans())
    def settle(self, data: st.DataObject, requeue: bool, multiple: bool) -> None:
        channel = data.draw(st.sampled_from([channel for channel in self.channels if channel.out]))
        tag = data.draw(st.sampled_from(sorted(channel.out)))
        entries = channel.deliveries.take_up_to(tag) if multiple else [channel.deliveries.take(tag)]
        tags = [each for each in sorted(channel.out) if each == tag or (multiple and each < tag)]
        assert [entry and entry.position for entry in entries] == [channel.out[each][0] for each in tags]
        for entry in reversed(entries):
            assert entry is not None
            self.give_back(entry, requeue=requeue)
        for each in tags:
            self.forget(channel, each, requeue=requeue)
        self.wake()
        self.drain()

    @rule(number=st.integers(0, 2))
    def close(self, number: int) -> None:
        """A channel ends: its consumers go, and all that is out on it returns."""
        channel = self.channels[number]
        for name in [name for name, member in self.members.items() if member.channel is channel]:
            self.remove(name)
        for entry in reversed(channel.deliveries.take_up_to(channel.deliveries.delivery_tag)):
            self.give_back(entry, requeue=True)
        for tag in list(channel.out):
            self.forget(channel, tag, requeue=True)
        self.channels[number] = self.make_channel(channel.deliveries.prefetch_count)
        self.drain()

    @precondition(lambda self: not self.members)
    @rule(no_ack=st.booleans(), number=st.integers(0, 2))
    def get(self, no_ack: bool, number: int) -> None:
        entry = self.queue.get(no_ack)
        assert (entry.position if entry else None) == (self.ready[0] if self.ready else None)
        if entry is None:
            return
        position, channel = self.ready.pop(0), self.channels[number]
        channel.deliveries.track(entry, no_ack)
        if no_ack:
            self.done.add(position)
        else:
            channel.out[channel.deliveries.delivery_tag] = (position, "")

    @rule()
    def purge(self) -> None:
        count, steps = self.queue.purge()
        assert count == len(self.ready)
        for _ in steps:
            pass
        self.done.update(self.ready)
        self.ready.clear()

    # --- as a channel does it ---

    def give_back(self, entry: Entry, *, requeue: bool) -> None:
        if entry.consumer is not None:
            entry.consumer.settled(entry)
        if requeue:
            self.queue.requeue(entry)
        else:
            self.queue.settle(entry)
            self.queue.touch()

    def forget(self, channel: FakeChannel, tag: int, *, requeue: bool) -> None:
        position, name = channel.out.pop(tag)
        if name in self.members:
            self.members[name].unacked -= 1
        if requeue:
            self.ready = sorted([*self.ready, position])
            self.returned.add(position)
        else:
            self.done.add(position)

    def remove(self, name: str) -> None:
        consumer = self.members.pop(name).consumer
        self.queue.remove_consumer(consumer)
        if consumer.deliveries.rota is not None:
            consumer.deliveries.rota.leave(self.queue)
            self.queue.touch()

    def wake(self) -> None:
        for channel in self.channels:
            if channel.deliveries.rota is not None:
                channel.deliveries.rota.touch()

    # --- what always holds ---

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        out = [position for channel in self.channels for position, _ in channel.out.values()]
        everywhere = sorted([*self.ready, *out, *self.done])
        assert everywhere == list(range(1, self.published + 1))

    @invariant()
    def the_queue_counts_as_the_model_does(self) -> None:
        assert self.queue.message_count == len(self.ready)
        assert self.queue.unacked == sum(len(channel.out) for channel in self.channels)
        assert sorted(c.tag for c in self.queue.consumers) == sorted(self.members)
        for channel in self.channels:
            assert channel.deliveries.tags() == sorted(channel.out)
            assert channel.deliveries.counted == channel.counted

    @invariant()
    def nothing_waits_that_somebody_can_take(self) -> None:
        assert not self.ready or not any(member.can_take for member in self.members.values())


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=40)
