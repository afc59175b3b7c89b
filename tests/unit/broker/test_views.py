"""How many messages consumers that browse or select look at in one turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties, decode_properties
from warren.broker import lane, view
from warren.broker.classic_queue import ClassicQueue
from warren.broker.entry import Entry
from warren.broker.lane import PASSED_FOR_A_UNIT, READY_FREE_MAX

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


STRAYS = 3_000
KINDS = 4
ANY = "kind >= 0"


@pytest.fixture
def with_strays() -> ClassicQueue:
    """A queue whose messages came back from a consumer that had taken them from behind the ready ones."""
    client = FakeBroker().connect().open()
    client.declare("q")
    for _ in range(2 * READY_FREE_MAX):  # not only the ready ones stay in their place
        client.publish("", "q", b"x")
    for number in range(STRAYS):
        client.publish("", "q", b"x", BasicProperties(headers={"kind": number % KINDS}))
    taker = FakeClient(client.node, name="taker").open()
    taker.send(m.BasicConsume(queue="q", consumer_tag="c", arguments={"x-selector": ANY}))
    client.run()
    taker.hang_up()
    client.run()
    queue = classic(client.vhost.queues["q"])
    assert queue.lane.strays.count == STRAYS
    return queue


def make_view(queue: ClassicQueue, selector: str) -> view.QueueView:
    made = view.choose_view(queue, {"x-selector": selector})
    assert made is not None
    made.begin_turn(10 * STRAYS)
    return made


def take_next(looking: view.QueueView) -> Entry:
    found = looking.find()
    assert found is not None
    entry = found.take()
    assert entry is not None
    return entry


def most_for(takes: int) -> int:
    """The work of taking every fourth message, if a view passes no message twice or more often than that."""
    return takes * KINDS * (view.LOOK_WORK + 2)


def work_of_taking(looking: Iterable[view.QueueView], times: int) -> int:
    """Have each view take so many messages by turns; return what all that costs."""
    spent = 0
    for _ in range(times):
        for each in looking:
            before = each.budget.left
            take_next(each)
            spent += before - each.budget.left
    return spent


def test_selector_that_takes_strays_goes_on_from_where_it_is(
    with_strays: ClassicQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PASSED_FOR_A_UNIT", 1)
    times = STRAYS // KINDS - 20
    looking = make_view(with_strays, "kind = 1")
    take_next(looking)  # behind the ready messages
    assert work_of_taking([looking], times) <= most_for(times)


def test_selectors_that_take_strays_from_each_other_go_on_from_where_they_are(
    with_strays: ClassicQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first would go on from a message that the second has taken meanwhile."""
    monkeypatch.setattr(lane, "PASSED_FOR_A_UNIT", 1)
    times = STRAYS // KINDS - 20
    views = [make_view(with_strays, "kind = 2"), make_view(with_strays, "kind = 1")]
    for looking in views:
        take_next(looking)
    assert work_of_taking(views, times) <= most_for(2 * times)


def test_long_way_to_a_stray_is_charged_and_counts_as_looks(with_strays: ClassicQueue) -> None:
    looking, strays = make_view(with_strays, "kind = 1"), with_strays.lane.strays
    looking.lanes[0].position = (strays.head.position + strays.tail.position) // 2  # type: ignore[union-attr]
    looking.left, looking.budget.left = 10 * STRAYS, 10 * STRAYS
    assert looking.find() is not None
    assert looking.budget.left <= 10 * STRAYS - view.LOOK_WORK - STRAYS // 4 // PASSED_FOR_A_UNIT
    assert looking.left < 10 * STRAYS - 1
