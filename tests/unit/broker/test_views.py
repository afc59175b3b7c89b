"""How many messages consumers that browse or select look at in one turn."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties, decode_properties
from warren.broker import view
from warren.broker.entry import Entry

SELECTORS = 300
MESSAGES = 100


@pytest.fixture
def client() -> FakeClient:
    client = FakeBroker().connect().open()
    client.declare("q")
    classic(
        client.vhost.queues["q"]
    ).lane.ready_max = MESSAGES  # all messages are ready, and none waits behind
    for number in range(MESSAGES):
        client.publish("", "q", b"x", BasicProperties(headers={"number": number}))
    client.frames()
    return client


def select(client: FakeClient, numbers: range) -> None:
    for number in numbers:
        client.send(
            m.BasicConsume(
                queue="q",
                consumer_tag=str(number),
                no_ack=True,
                arguments={"x-selector": f"number = {number}"},
            )
        )


def test_very_many_selectors_together_look_at_no_more_in_a_turn_than_few(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[view.QueueView] = Counter()
    wants = view.QueueView.wants

    def counting(self: view.QueueView, entry: Entry) -> bool:
        looks[self] += 1
        return wants(self, entry)

    select(client, range(MESSAGES, MESSAGES + SELECTORS))
    client.world.run()
    for consumer in client.channel.consumers.values():
        view.view_of(consumer).lanes[0].came_back(1, look_again=True)
    monkeypatch.setattr(view.QueueView, "wants", counting)
    client.vhost.queues["q"].touch()
    client.node.end_turn()
    before, turns = 0, 0
    while client.world.soon:
        assert looks.total() - before <= view.LOOKED_AT_MAX
        before, turns = looks.total(), turns + 1
        client.world.turn()
    assert turns > SELECTORS * MESSAGES // view.LOOKED_AT_MAX
    assert set(looks.values()) == {MESSAGES}, "each comes to the end, and then there is peace"


def test_properties_are_decoded_once_for_all_selectors(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bytes] = []

    def counting(raw: bytes) -> BasicProperties:
        calls.append(raw)
        return decode_properties(raw)

    monkeypatch.setattr(view, "decode_properties", counting)
    view._decoded.cache_clear()
    select(client, range(MESSAGES - 1, MESSAGES + 9))
    client.run()
    assert len(calls) == MESSAGES
    assert client.bodies() == [b"x"], "of the one that asks for the last number"
