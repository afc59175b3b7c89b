"""The records of shards, as etcd tells them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

from tests.unit.cluster.nodes import RECORD
from warren.cluster.config import Known, record_text
from warren.cluster.transactions import Changed, KeyValue
from warren.server.cluster.etcd import Etcd, Loaded
from warren.server.cluster.shard_records import ShardRecords
from warren.server.log import get_logger

PREFIX = "/warren/test/"
SECONDS_MAX = 60


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
