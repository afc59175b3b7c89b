"""A channel with a limit for all its consumers, on several queues: none of them is forgotten."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from warren.amqp import methods as m

QUEUES = ("a", "b", "c")
queues = st.sampled_from(QUEUES)


class ChannelMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        node = make_node(FakeWorld())
        self.client = FakeClient(node).open()
        self.other = FakeClient(node).open()
        for queue in QUEUES:
            self.other.declare(queue)
        self.limit = 0
        self.consumers: dict[str, str] = {}
        self.set_limit(2)

    @rule(limit=st.integers(0, 4))
    def set_limit(self, limit: int) -> None:
        self.client.send(m.BasicQos(prefetch_count=limit, global_=True))
        self.limit = limit

    @rule(queue=queues, count=st.integers(1, 4))
    def publish(self, queue: str, count: int) -> None:
        for _ in range(count):
            self.other.publish("", queue)

    @rule(queue=queues, no_ack=st.booleans(), priority=st.integers(0, 1))
    def consume(self, queue: str, no_ack: bool, priority: int) -> None:
        tag = f"{queue}{no_ack}{priority}"
        if tag not in self.consumers:
            self.client.consume(queue, tag, no_ack=no_ack, arguments={"x-priority": priority})
            self.consumers[tag] = queue

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.consumers:
            tag = data.draw(st.sampled_from(sorted(self.consumers)))
            del self.consumers[tag]
            self.client.send(m.BasicCancel(consumer_tag=tag))

    @rule(data=st.data(), multiple=st.booleans(), requeue=st.sampled_from([None, False, True]))
    def settle(self, data: st.DataObject, multiple: bool, requeue: bool | None) -> None:
        tags = self.client.channel.deliveries.tags()
        if not tags:
            return
        tag = data.draw(st.sampled_from(tags))
        if requeue is None:
            self.client.send(m.BasicAck(delivery_tag=tag, multiple=multiple))
        else:
            self.client.send(m.BasicNack(delivery_tag=tag, multiple=multiple, requeue=requeue))

    @rule(queue=queues)
    def empty(self, queue: str) -> None:
        """Somebody else takes what waits in a queue."""
        self.other.send(m.QueuePurge(queue=queue))

    @invariant()
    def nothing_waits_that_the_channel_could_take(self) -> None:
        channel = self.client.channel
        if self.limit and channel.deliveries.counted >= self.limit:
            return
        waiting = Counter({queue: self.client.vhost.queues[queue].message_count for queue in QUEUES})
        assert not any(waiting[queue] for queue in set(self.consumers.values())), waiting

    @invariant()
    def nothing_is_left_undone(self) -> None:
        assert not self.client.node.touched_queues
        assert not self.client.world.errors


TestChannel = ChannelMachine.TestCase
TestChannel.settings = settings(max_examples=150, stateful_step_count=40)
