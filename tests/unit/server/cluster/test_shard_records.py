"""The records of shards, as etcd tells them, and what the protocol hears of a swap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import cast

import pytest

from tests.unit.cluster.nodes import RECORD
from warren.cluster.config import Known, record_text
from warren.cluster.effects import CasAnswer
from warren.cluster.transactions import OPERATIONS_MAX, Answer, Changed, KeyValue, Outcome, Transaction
from warren.server.cluster.etcd import Etcd, Loaded
from warren.server.cluster.shard_records import ShardRecords
from warren.server.log import get_logger

PREFIX = "/warren/test/"
SECONDS_MAX = 60
KEY = "/c/shards/3"
CHANGED = RECORD._replace(isr=RECORD.isr[:2])


class Answering:
    """Stands in for `Etcd`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def txn(self, _: Transaction) -> Answer:
        return self.answer


def there(value: bytes) -> tuple[KeyValue]:
    return (KeyValue(KEY, value, 1, 8, 2),)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(Outcome.SUCCEEDED, 9), Known(9, CHANGED)),
        (Answer(Outcome.FAILED, 9, there(record_text(RECORD).encode())), Known(8, RECORD)),
        (Answer(Outcome.FAILED, 9, (None,)), Outcome.UNKNOWN),
        (Answer(Outcome.FAILED, 9, there(b"no record")), Outcome.UNKNOWN),
        (Answer(Outcome.UNKNOWN), Outcome.UNKNOWN),
        (Answer(Outcome.NOT_SENT), Outcome.NOT_SENT),
    ],
)
async def test_a_swap_tells_what_came_of_it(answer: Answer, told: CasAnswer) -> None:
    failures: list[Exception] = []
    etcd = cast("Etcd", Answering(answer))
    records = ShardRecords(etcd, "/c/", get_logger(), learn=lambda *_: None, report=failures.append)
    heard: asyncio.Future[CasAnswer] = asyncio.get_running_loop().create_future()
    records.swap(3, 7, CHANGED, heard.set_result)
    assert await heard == told
    await records.stop()
    assert not failures


class TwoRecords:
    """Stands in for `Etcd`."""

    async def load(self, prefix: str) -> Loaded:
        return Loaded(
            2, [KeyValue(f"{prefix}{shard}", record_text(RECORD).encode(), 1, 2, 1) for shard in (0, 1)]
        )

    async def watch(self, _prefix: str, _revision: int) -> AsyncGenerator[list[Changed]]:
        await asyncio.Event().wait()
        yield []


async def test_a_record_that_cannot_be_dealt_with_stops_no_other() -> None:
    reported: list[Exception] = []
    learnt: asyncio.Queue[tuple[int, Known]] = asyncio.Queue()

    def learn(shard: int, known: Known) -> None:
        if shard == 0:
            raise RuntimeError("it cannot be dealt with")
        learnt.put_nowait((shard, known))

    records = ShardRecords(
        cast("Etcd", TwoRecords()), PREFIX, get_logger(), learn=learn, report=reported.append
    )
    records.start()
    async with asyncio.timeout(SECONDS_MAX):
        assert await learnt.get() == (1, Known(2, RECORD))
    await records.stop()
    assert [str(error) for error in reported] == ["it cannot be dealt with"]


class AllRecords:
    """Stands in for `Etcd`, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def get_all(self, keys: Sequence[str]) -> tuple[KeyValue | None, ...]:
        self.asked.append(list(keys))
        return tuple(KeyValue(key, record_text(RECORD).encode(), 1, 2, 1) for key in keys)


async def test_records_that_are_asked_for_in_one_turn_are_one_request() -> None:
    etcd, reported = AllRecords(), list[Exception]()
    records = ShardRecords(
        cast("Etcd", etcd), PREFIX, get_logger(), learn=lambda *_: None, report=reported.append
    )
    count = OPERATIONS_MAX + 2
    heard: asyncio.Queue[int] = asyncio.Queue()

    def hear(shard: int, known: Known) -> None:
        heard.put_nowait(shard)
        if shard == 0:
            raise RuntimeError("it cannot be dealt with")
        assert known == Known(2, RECORD)

    for shard in range(count):
        records.read(shard, partial(hear, shard))
    async with asyncio.timeout(SECONDS_MAX):
        assert {await heard.get() for _ in range(count)} == set(range(count))
        records.read(1, partial(hear, 1))
        assert await heard.get() == 1
    await records.stop()
    assert [len(keys) for keys in etcd.asked] == [OPERATIONS_MAX, 2, 1]
    assert [str(error) for error in reported] == ["it cannot be dealt with"]
