"""Federation loses nothing that its upstream has confirmed, whichever of the two brokers is killed, and when.

Thousands of messages a second are published upstream while brokers are killed at random. What comes over a
federated exchange waits in a queue here until the end; a federated queue is consumed here all the time. Each
confirmed message arrives, in order, but for those that come again.

`FEDERATION_KILLS` says how many kills, `RELAY_SEED` repeats their moments; with `--log-cli-level=info` the
numbers are told.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.relayed import (
    SEED,
    Collector,
    Killable,
    Numbers,
    OurBroker,
    Verdict,
    declare,
    empty,
    get,
    kill_often,
    our_brokers,
    put,
    until,
)
from tests.support.rabbitmq import IS_INSTALLED, RabbitMQ, run_rabbitmq
from warren.amqp import methods as m

KILLS = int(os.environ.get("FEDERATION_KILLS", "3"))
RABBITMQ_KILLS = int(os.environ.get("FEDERATION_KILLS", "1"))  # which takes longer to start
FIRST = 5_000  # so many messages come before the first kill
INTERNAL = "federation: x -> down"  # the queue upstream for the federated exchange
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + KILLS * 60)]


def federate(down: OurBroker, up: Killable) -> None:
    uri = f"amqp://guest:guest@{up.address.host}:{up.address.port}"
    upstream = {"uri": uri, "reconnect-delay": 0.2, "prefetch-count": 200}
    put(down, "parameters/federation-upstream/%2F/up", {"value": upstream})
    definition = {"federation-upstream-set": "all"}
    put(down, "policies/%2F/p", {"pattern": "^[xq]$", "definition": definition, "apply-to": "all"})


def runs(down: OurBroker) -> bool:
    return [link["status"] for link in get(down, "federation-links")] == ["running"]


async def over_exchange(up: Killable, down: OurBroker, killed: list[Killable], kills: int) -> Verdict:
    """What comes over the federated exchange `x` into the queue `all`."""
    await declare(
        down,
        m.ExchangeDeclare(exchange="x", type="topic", durable=True, arguments={}),
        m.QueueDeclare(queue="all", durable=True, arguments={}),
        m.QueueBind(queue="all", exchange="x", routing_key="#", arguments={}),
    )
    federate(down, up)
    await until(lambda: runs(down), "the link runs")
    numbers = Numbers(up, "x", "k")
    await until(lambda: len(numbers.confirmed) >= FIRST, "messages")
    await kill_often(killed, kills, random.Random(SEED))
    await numbers.stop()
    await until(lambda: runs(down), "the link runs again")
    await empty(up, INTERNAL)
    collector = Collector(down, "all")
    await until(lambda: numbers.confirmed <= collector.seen, "all that was confirmed has arrived")
    await empty(down, "all")
    await collector.stop()
    return Verdict(numbers.confirmed, collector.numbers)


async def over_queue(up: Killable, down: OurBroker, killed: list[Killable], kills: int) -> Verdict:
    """What comes over the federated queue `q` to a consumer."""
    for broker in (up, down):
        await declare(broker, m.QueueDeclare(queue="q", durable=True, arguments={}))
    federate(down, up)
    numbers, collector = Numbers(up, "", "q"), Collector(down, "q")
    await until(lambda: len(collector.numbers) >= FIRST, "messages")
    await kill_often(killed, kills, random.Random(SEED))
    await numbers.stop()
    await until(lambda: numbers.confirmed <= collector.seen, "all that was confirmed has arrived")
    await collector.stop()
    return Verdict(numbers.confirmed, collector.numbers)


WAYS = {"exchange": over_exchange, "queue": over_queue}
STEPS_A_KILL = {"exchange": 1, "queue": 2}
"""A kill of the broker here also takes the acks of the queue's consumer, besides those of the link."""


@pytest.mark.parametrize("way", WAYS)
async def test_kills_of_either_broker_lose_nothing(tmp_path: Path, way: str) -> None:
    async with our_brokers(tmp_path, "up", "down") as (up, down):
        verdict = await WAYS[way](up, down, [up, down], KILLS)
    verdict.check(steps_max=STEPS_A_KILL[way] * KILLS)


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """Without the plugin for federation: an upstream needs none."""
    with run_rabbitmq(tmp_path_factory.mktemp("rabbitmq") / "node") as running:
        yield running


@pytest.mark.skipif(not IS_INSTALLED, reason="Debian's rabbitmq-server is not installed")
@pytest.mark.parametrize("way", WAYS)
async def test_kills_of_a_rabbitmq_upstream_lose_nothing(
    tmp_path: Path, rabbitmq: RabbitMQ, way: str
) -> None:
    async with our_brokers(tmp_path, "down") as (down,):
        verdict = await WAYS[way](rabbitmq, down, [rabbitmq], RABBITMQ_KILLS)
        if way == "exchange":
            internal = [x for x in get(rabbitmq, "exchanges/%2F") if x["name"].startswith(INTERNAL)]
            assert [exchange["type"] for exchange in internal] == ["fanout"], "the type is not known there"
    verdict.check(steps_max=STEPS_A_KILL[way] * RABBITMQ_KILLS)
