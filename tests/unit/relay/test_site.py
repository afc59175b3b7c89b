"""On which node of a cluster a relay runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.support.fakes import FakeWorld
from tests.unit.management.fake_cluster import OTHER, THIS, FakeCluster
from warren import commands
from warren.broker.queue import Queue
from warren.relay.shovel_definition import read_shovel
from warren.relay.site import BINDINGS_MAX, queue_behind, queue_of_shovel, why_elsewhere
from warren.relay.supervisor import State, Supervised

THERE = "amqp://there"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[warren.Broker]:
    async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
        broker.cluster = FakeCluster()
        for name in ("a", "b"):
            broker.execute(commands.DeclareQueue(vhost="/", name=name, durable=True, arguments={}))
        yield broker


def queue(broker: warren.Broker, name: str) -> Queue:
    return broker.node.vhosts["/"].queues[name]


def first(broker: warren.Broker, name: str) -> None:
    assert isinstance(broker.cluster, FakeCluster)
    broker.cluster.first = name


def bind(broker: warren.Broker, name: str, key: str = "k") -> None:
    broker.execute(
        commands.Bind(vhost="/", source="amq.topic", destination=name, to_queue=True, routing_key=key)
    )


@pytest.mark.parametrize(
    ("definition", "found"),
    [
        ({"src-uri": "amqp://", "src-queue": "a", "dest-uri": THERE, "dest-queue": "b"}, "a"),
        ({"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}, "a"),
        ({"src-uri": THERE, "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}, "b"),
        ({"src-uri": "amqp://", "src-exchange": "e", "dest-uri": "amqp://", "dest-queue": "b"}, "b"),
        ({"src-uri": "amqp://", "src-exchange": "e", "dest-uri": THERE, "dest-queue": "b"}, None),
        ({"src-uri": THERE, "src-queue": "a", "dest-uri": THERE, "dest-queue": "b"}, None),
        ({"src-uri": THERE, "src-queue": "q", "dest-uri": "amqp://", "dest-exchange": "amq.topic"}, "b"),
        ({"src-uri": THERE, "src-queue": "q", "dest-uri": "amqp://", "dest-exchange-key": "a"}, None),
        (
            {
                "src-uri": THERE,
                "src-queue": "q",
                "dest-uri": "amqp://",
                "dest-exchange": "",
                "dest-exchange-key": "a",
            },
            "a",
        ),
        ({"src-uri": "amqp://", "src-queue": "none", "dest-uri": THERE}, None),
        ({"src-uri": "amqp:///none", "src-queue": "a", "dest-uri": THERE}, None),
    ],
)
async def test_a_shovel_has_the_queue_of_its_source_or_that_of_its_destination(
    broker: warren.Broker, definition: dict[str, Any], found: str | None
) -> None:
    bind(broker, "b")
    find = queue_of_shovel(broker, read_shovel("s", definition))
    assert find() is (None if found is None else queue(broker, found))


async def test_a_relay_of_a_queue_runs_where_that_is_led(broker: warren.Broker) -> None:
    first(broker, OTHER)

    def find() -> Queue:
        return queue(broker, "a")

    assert why_elsewhere(broker, find) == ""
    broker.node.vhosts["/"].retire_queue(find())
    first(broker, THIS)
    assert why_elsewhere(broker, find) == "queue 'a' in vhost '/' is not led by this node any more: ask again"


@pytest.mark.parametrize(
    ("name", "why"),
    [(THIS, ""), (OTHER, "node 'other' runs it"), ("", "too few nodes of the cluster are there")],
)
async def test_other_relays_run_on_the_first_node(broker: warren.Broker, name: str, why: str) -> None:
    first(broker, name)
    assert why_elsewhere(broker, lambda: None) == why


async def test_a_broker_that_is_alone_runs_all(broker: warren.Broker) -> None:
    broker.cluster = None
    assert why_elsewhere(broker, lambda: None) == ""


async def test_the_first_queue_by_name_stands_for_an_exchange(broker: warren.Broker) -> None:
    assert queue_behind(broker, "/", "amq.topic") is None
    bind(broker, "b")
    bind(broker, "a")
    assert queue_behind(broker, "/", "amq.topic") is queue(broker, "a")
    for number in range(BINDINGS_MAX):
        bind(broker, "b", f"k{number}")
    assert queue_behind(broker, "/", "amq.topic") is None, "too many to look at"
    assert queue_behind(broker, "/", "none") is None


class Carrier:
    """A relay that runs until it is cancelled, and then until it is let go."""

    reconnect_seconds = 1.0

    def __init__(self) -> None:
        self.lives = 0
        self.may_end = asyncio.Event()
        self.has_begun = asyncio.Event()

    async def run(self, running: Callable[[], None]) -> bool:
        self.lives += 1
        running()
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
        return False

    def stop_taking(self) -> None: ...


async def test_a_relay_goes_where_it_is_to_run_and_begins_anew_when_it_has_ended() -> None:
    why = "node 'b' runs it"
    world, relay = FakeWorld(), Carrier()
    supervised = Supervised(relay, world.time_ms, world.errors.append, why_elsewhere=lambda: why)
    assert (supervised.status.state, supervised.status.reason) == (State.ELSEWHERE, why)
    why = ""
    supervised.look()
    await relay.has_begun.wait()
    assert supervised.status.state is State.RUNNING
    why = "node 'c' runs it"
    supervised.look()
    supervised.look()
    assert (supervised.status.state, supervised.status.reason) == (State.ELSEWHERE, why)
    relay.has_begun.clear()
    why = ""
    supervised.look()
    for _ in range(10):
        await asyncio.sleep(0)
    assert relay.lives == 1, "the first life has not ended"
    relay.may_end.set()
    await relay.has_begun.wait()
    assert relay.lives == 2
    await supervised.stop()
    supervised.look()
    assert supervised.task is None
