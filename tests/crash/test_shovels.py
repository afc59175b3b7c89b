"""A shovel with ack-mode on-confirm loses nothing, whichever of its two brokers is killed, and when.

Thousands of messages a second are published while brokers are killed at random, with a long queue at the
source when the shovel begins, and a longer one at the destination in the end. Each confirmed message arrives.
Their order is kept, but for those that come again. If the destination was killed, these are at most those
that were on their way. If the source was, they are also those whose acks were not on disk yet.

`SHOVEL_KILLS` says how many kills, `RELAY_SEED` repeats their moments; with `--log-cli-level=info` the
numbers are told.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crash.relayed import (
    PREFETCH,
    SEED,
    Collector,
    Killable,
    Numbers,
    OurBroker,
    Verdict,
    declare,
    empty,
    kill_often,
    our_brokers,
    put,
    repeat,
    until,
)
from tests.support.rabbitmq import IS_INSTALLED, RabbitMQ, run_rabbitmq
from warren.amqp import methods as m

KILLS = int(os.environ.get("SHOVEL_KILLS", "4"))
RABBITMQ_KILLS = int(os.environ.get("SHOVEL_KILLS", "1"))  # which takes longer to start
BACKLOG = 20_000
SHOVEL: dict[str, Any] = {
    "src-queue": "from",
    "dest-queue": "to",
    "src-prefetch-count": PREFETCH,
    "reconnect-delay": 0.2,
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + KILLS * 60)]


async def carry(source: Killable, destination: Killable, killed: Sequence[Killable], kills: int) -> Verdict:
    """Have the shovel carry numbers while these brokers are killed. It runs in the one that is ours."""
    here = source if isinstance(source, OurBroker) else destination
    await declare(source, m.QueueDeclare(queue="from", durable=True, arguments={}))
    await declare(destination, m.QueueDeclare(queue="to", durable=True, arguments={}))
    numbers = Numbers(source, "", "from")
    await until(lambda: len(numbers.confirmed) >= BACKLOG, "a backlog at the source")
    uris = {
        end: "amqp://" if broker is here else broker.address.url()
        for end, broker in (("src-uri", source), ("dest-uri", destination))
    }
    put(here, "parameters/shovel/%2F/s", {"value": SHOVEL | uris})
    await kill_often(killed, kills, random.Random(SEED))
    await numbers.stop()
    await empty(source, "from")
    collector = Collector(destination, "to")
    await until(lambda: numbers.confirmed <= collector.seen, "all that was confirmed has arrived")
    await empty(destination, "to")
    await collector.stop()
    return Verdict(numbers.confirmed, collector.numbers)


@pytest.mark.parametrize("killed", ["destination", "either"])
async def test_kills_lose_nothing(tmp_path: Path, killed: str) -> None:
    async with our_brokers(tmp_path, "source", "destination") as (source, destination):
        brokers = [destination] if killed == "destination" else [source, destination]
        verdict = await carry(source, destination, brokers, KILLS)
    verdict.check(steps_max=KILLS)
    if killed == "destination":
        assert max(verdict.steps_back, default=0) <= PREFETCH, repeat()


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with run_rabbitmq(tmp_path_factory.mktemp("rabbitmq") / "node") as running:
        yield running


@pytest.mark.skipif(not IS_INSTALLED, reason="Debian's rabbitmq-server is not installed")
@pytest.mark.parametrize("role", ["source", "destination"])
async def test_kills_of_a_rabbitmq_lose_nothing(tmp_path: Path, rabbitmq: RabbitMQ, role: str) -> None:
    async with our_brokers(tmp_path, "ours") as (ours,):
        source, destination = (rabbitmq, ours) if role == "source" else (ours, rabbitmq)
        verdict = await carry(source, destination, [rabbitmq], RABBITMQ_KILLS)
    verdict.check(steps_max=RABBITMQ_KILLS)
    if role == "destination":
        assert max(verdict.steps_back, default=0) <= PREFETCH, repeat()


async def test_changes_under_load_repeat_nothing(tmp_path: Path) -> None:
    """A shovel that is changed while messages pass acks what is confirmed before it ends."""
    async with our_brokers(tmp_path, "source", "destination") as (source, destination):
        await declare(source, m.QueueDeclare(queue="from", durable=True, arguments={}))
        await declare(destination, m.QueueDeclare(queue="to", durable=True, arguments={}))
        numbers, collector = Numbers(source, "", "from"), Collector(destination, "to")
        uris = {"src-uri": "amqp://", "dest-uri": destination.address.url()}
        for number in range(KILLS):
            value = SHOVEL | uris | {"src-consumer-args": {"number": number}}
            put(source, "parameters/shovel/%2F/s", {"value": value})
            wanted = len(collector.numbers) + 1_000
            await until(lambda wanted=wanted: len(collector.numbers) >= wanted, "more messages")  # type: ignore[misc]
        await numbers.stop()
        await until(lambda: numbers.confirmed <= collector.seen, "all that was confirmed has arrived")
        await collector.stop()
    Verdict(numbers.confirmed, collector.numbers).check(steps_max=0)
