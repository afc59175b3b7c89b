"""What the protocol hears of a swap of a record: what is there now, or why that is not known."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.unit.cluster.nodes import RECORD
from warren.cluster.config import Known, record_text
from warren.cluster.effects import CasAnswer
from warren.cluster.transactions import Answer, KeyValue, Outcome, Transaction
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.shard_records import ShardRecords
from warren.server.log import get_logger

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
