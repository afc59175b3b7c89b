"""Nodes tell each other what they count of their queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine import Machine
from tests.unit.broker.test_replacing import ELSEWHERE, declare, replace
from warren.amqp import methods as m
from warren.broker.history import History
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.queue_figures import QueueFigures
from warren.cluster.config import StoreId
from warren.cluster.messages import Figures, Message
from warren.server.cluster.figure_service import QUEUES_A_MESSAGE, ROUNDS_TO_ALL, FigureService

OTHERS = [StoreId("b"), StoreId("c")]


class Sent:
    def __init__(self) -> None:
        self.messages: list[tuple[StoreId, Message]] = []

    def take(self) -> list[tuple[StoreId, Message]]:
        messages, self.messages = self.messages, []
        return messages


def told_to(store: StoreId, messages: list[tuple[StoreId, Message]]) -> dict[str, QueueFigures]:
    """By the names of queues."""
    found: dict[str, QueueFigures] = {}
    for to, message in messages:
        assert isinstance(message, Figures)
        if to == store:
            found |= {queue.name: queue.figures for queue in message.queues}
    return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()
    machine.platter.close()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def service(machine: Machine, sent: Sent) -> FigureService:
    return FigureService(
        machine.node, lambda: OTHERS, lambda store, message: sent.messages.append((store, message))
    )


async def test_every_other_node_is_told_of_what_has_changed(
    machine: Machine, service: FigureService, sent: Sent
) -> None:
    client = machine.connect()
    declare(machine, client)
    client.send(m.QueueDeclare(queue="idle", durable=True, arguments={}))
    machine.run()
    await service.tell()
    first = sent.take()
    assert [store for store, _ in first] == OTHERS
    assert set(told_to(OTHERS[1], first)) == {"q", "idle"}
    await service.tell()
    assert sent.take() == []
    client.publish("", "q", b"four")
    client.publish("", "q", b"4")
    client.send(m.BasicGet(queue="q", no_ack=False))
    machine.run()
    await service.tell()
    told = told_to(OTHERS[0], sent.take())
    assert set(told) == {"q"}
    figures = told["q"]
    assert (figures.ready, figures.ready_bytes, figures.unacked) == (1, 1, 1)
    assert (figures.published, figures.delivered, figures.got) == (2, 1, 1)


async def test_all_is_told_to_a_node_that_comes_and_now_and_then(
    machine: Machine, service: FigureService, sent: Sent
) -> None:
    declare(machine, machine.connect())
    await service.tell()
    sent.take()
    service.link_up()
    await service.tell()
    assert set(told_to(OTHERS[0], sent.take())) == {"q"}
    for _ in range(ROUNDS_TO_ALL):
        await service.tell()
    assert [set(told_to(store, [(store, message)])) for store, message in sent.take()] == [{"q"}, {"q"}]


async def test_many_queues_are_told_in_several_messages(
    machine: Machine, service: FigureService, sent: Sent
) -> None:
    client = machine.connect()
    for number in range(QUEUES_A_MESSAGE + 1):
        client.send(m.QueueDeclare(queue=f"q{number}", arguments={}))
    machine.run()
    await service.tell()
    messages = sent.take()
    assert [store for store, _ in messages] == [*OTHERS, *OTHERS]
    assert len(told_to(OTHERS[0], messages)) == QUEUES_A_MESSAGE + 1


async def test_what_is_told_counts_for_queues_that_live_elsewhere_only(
    machine: Machine, service: FigureService, sent: Sent
) -> None:
    client = machine.connect()
    declare(machine, client)
    client.publish("", "q", b"1")
    machine.run()
    await service.tell()
    ((_, message), _) = sent.take()
    assert isinstance(message, Figures)
    here = machine.queues["q"]
    service.received(message)
    assert here.tally.published == 1
    elsewhere = replace(machine, "q", home=ELSEWHERE)
    assert isinstance(elsewhere, QueueElsewhere)
    assert elsewhere.figures is None
    gone = message.queues[0]._replace(name="gone")
    service.received(Figures((gone, gone._replace(vhost="gone"), *message.queues)))
    assert elsewhere.figures == message.queues[0].figures
    assert elsewhere.tally.published == 1
    await service.tell()
    assert sent.take() == []  # it is not this node that tells of it


def test_samples_of_one_leader_are_not_mixed_with_those_of_the_next(machine: Machine) -> None:
    declare(machine, machine.connect())
    elsewhere = replace(machine, "q", home=ELSEWHERE)
    assert isinstance(elsewhere, QueueElsewhere)
    figures = QueueFigures(*[5] * len(QueueFigures._fields))
    elsewhere.take_figures(figures)
    elsewhere.history = history = History(1, 0, 0)
    elsewhere.take_figures(figures._replace(ready=0, published=6))
    assert elsewhere.history is history
    elsewhere.take_figures(figures._replace(published=0))
    assert elsewhere.history is None
    assert elsewhere.tally.published == 0
