"""Deliveries against a dictionary, with enough of them that old ones are put aside and slots given back."""

from __future__ import annotations

import gc
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.amqp.writer import Output
from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.queue import Queue
from warren.session.deliveries import SLOTS_TO_SPARE, Deliveries

NO_QUEUE = cast("Queue", None)  # an entry's queue is for others to ask
MESSAGE = Message(b"\0", b"\0", b"\0\0", b"x", False)
PREFIX = b"\0\x3c\0\x3c\x01c"


class DeliveriesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.output = Output([], None)
        self.deliveries = Deliveries(self.output, 1)
        self.model: dict[int, Entry] = {}
        self.tag = 0

    @rule(count=st.sampled_from([1, 3, 500, 3000]), no_ack=st.booleans(), by_get=st.booleans())
    def deliver(self, count: int, no_ack: bool, by_get: bool) -> None:
        for _ in range(count):
            self.tag += 1
            entry = Entry(MESSAGE, NO_QUEUE, self.tag)
            if by_get:
                self.deliveries.track(entry, no_ack)
            else:
                assert self.deliveries.send(entry, PREFIX, no_ack) == self.tag
            if not no_ack:
                self.model[self.tag] = entry
        self.output.take()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=st.integers(1, 5))
    def take(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            tag = list(self.model)[data.draw(st.integers(0, len(self.model) - 1))]
            assert self.deliveries.take(tag) is self.model.pop(tag)
            assert self.deliveries.take(tag) is None

    @precondition(lambda self: len(self.model) > 10)
    @rule(keep_every=st.sampled_from([2, 7, 400, 10_000]), backwards=st.booleans())
    def take_all_but_stragglers(self, keep_every: int, backwards: bool) -> None:
        tags = [tag for index, tag in enumerate(self.model) if (index + 1) % keep_every]
        for tag in reversed(tags) if backwards else tags:
            assert self.deliveries.take(tag) is self.model.pop(tag)

    @rule(data=st.data())
    def take_up_to(self, data: st.DataObject) -> None:
        last = data.draw(st.integers(0, self.tag + 2))
        tags = [tag for tag in self.model if tag <= last]
        assert self.deliveries.take_up_to(last) == [self.model.pop(tag) for tag in tags]

    @rule(beyond=st.integers(1, 2**63))
    def nothing_is_under_a_tag_never_given(self, beyond: int) -> None:
        for tag in (0, self.tag + beyond):
            assert self.deliveries.take(tag) is None
            assert not self.deliveries.is_outstanding(tag)

    @invariant()
    def the_tags_outstanding_are_the_models(self) -> None:
        assert self.deliveries.tags() == list(self.model)
        assert self.deliveries.outstanding == len(self.model)
        assert self.deliveries.delivery_tag == self.tag

    @invariant()
    def each_tag_is_outstanding_or_not(self) -> None:
        near = {1, 2, self.tag - 1, self.tag} | {
            tag + step for tag in list(self.model)[:5] for step in (-1, 0, 1)
        }
        for tag in near - {0, -1}:
            assert self.deliveries.is_outstanding(tag) is (tag in self.model)

    @invariant()
    def memory_is_bounded_by_what_is_outstanding(self) -> None:
        slots = max(len(held) for held in gc.get_referents(self.deliveries) if isinstance(held, list))
        assert slots <= 2 * (4 * len(self.model) + SLOTS_TO_SPARE) + SLOTS_TO_SPARE


TestDeliveries = DeliveriesMachine.TestCase
TestDeliveries.settings = settings(max_examples=30, stateful_step_count=25)
