"""Giving back over many turns against a model in which it happens at once: nothing is lost or doubled, and
what is delivered is always the first that is there.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from warren.amqp import methods as m
from warren.broker import turns

SHARE = 7
CLIENTS = 3


class GivingBackMachine(RuleBasedStateMachine):
    """`ready` and what is out with each client, by tag, are numbers of messages, as they should be."""

    def __init__(self) -> None:
        super().__init__()
        self.real_limits = turns.WORK_A_TURN_MAX, turns.SHARE_MAX, turns.SHARE_MIN
        turns.WORK_A_TURN_MAX, turns.SHARE_MAX, turns.SHARE_MIN = 3 * SHARE, SHARE, SHARE
        self.broker = FakeBroker()
        self.publisher = self.broker.connect("publisher").open()
        self.out: list[dict[int, int]] = [{} for _ in range(CLIENTS)]
        self.clients = [self.open(index) for index in range(CLIENTS)]
        self.clients[0].declare("q")
        self.published = 0
        self.ready: set[int] = set()

    def teardown(self) -> None:
        self.finish()
        everything = sorted([*self.ready, *(number for out in self.out for number in out.values())])
        for client in self.clients:
            client.hang_up()
        reader = self.broker.connect().open()
        reader.consume("q", no_ack=True)
        self.broker.world.run()
        assert [int(body) for body in reader.bodies()] == everything
        assert self.broker.world.errors == []
        self.broker.stop()
        turns.WORK_A_TURN_MAX, turns.SHARE_MAX, turns.SHARE_MIN = self.real_limits

    def open(self, index: int) -> FakeClient:
        client = self.broker.connect(f"client {index}").open()
        client.call(m.BasicQos(prefetch_size=0, prefetch_count=40, global_=False), m.BasicQosOk)
        return client

    def look(self) -> None:
        """Every delivery was of the first message that was there."""
        got = [
            (int(content.body), index, content.method.delivery_tag)
            for index, client in enumerate(self.clients)
            for content in client.contents()
            if isinstance(content.method, m.BasicDeliver)
        ]
        for number, index, tag in sorted(got):
            assert number in self.ready
            self.ready.discard(number)
            self.out[index][tag] = number
        assert not got or not self.ready or max(got)[0] < min(self.ready)

    def finish(self) -> None:
        while self.broker.world.soon:
            self.broker.world.turn()
            self.look()

    def can_speak(self, index: int) -> bool:
        return not self.clients[index].channel.waiting

    @rule(count=st.integers(1, 60))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.published += 1
            self.ready.add(self.published)
            self.publisher.publish("", "q", str(self.published).encode())
        self.look()

    @rule(index=st.integers(0, CLIENTS - 1))
    def consume_or_cancel(self, index: int) -> None:
        if self.can_speak(index):
            client = self.clients[index]
            if client.channel.consumers:
                client.send(m.BasicCancel(consumer_tag="c"))
            else:
                client.consume("q")
            self.look()

    @rule(index=st.integers(0, CLIENTS - 1), part=st.integers(0, 100), fate=st.sampled_from("anr"))
    def settle(self, index: int, part: int, fate: str) -> None:
        out = self.out[index]
        if not out or not self.can_speak(index):
            return
        tags = sorted(out)
        last = tags[(len(tags) - 1) * part // 100]
        settled = {out.pop(tag) for tag in tags if tag <= last}
        if fate == "n":
            self.ready |= settled
        if fate == "a":
            self.clients[index].send(m.BasicAck(delivery_tag=last, multiple=True))
        else:
            self.clients[index].send(m.BasicNack(delivery_tag=last, multiple=True, requeue=fate == "n"))
        self.look()

    @rule(index=st.integers(0, CLIENTS - 1))
    def recover(self, index: int) -> None:
        if self.can_speak(index):
            self.ready |= set(self.out[index].values())
            self.out[index].clear()
            self.clients[index].send(m.BasicRecover(requeue=True))
            self.look()

    @rule(index=st.integers(0, CLIENTS - 1))
    def hang_up(self, index: int) -> None:
        self.ready |= set(self.out[index].values())
        self.out[index].clear()
        self.clients[index].connection.lost()
        self.clients[index] = self.open(index)
        self.look()

    @precondition(lambda self: self.broker.world.soon)
    @rule()
    def turn(self) -> None:
        self.broker.world.turn()
        self.look()


TestGivingBack = GivingBackMachine.TestCase
TestGivingBack.settings = settings(max_examples=60, stateful_step_count=40)
