"""When the records of shards are read."""

from __future__ import annotations

import itertools

from warren.cluster.config import Leadership, RunId, StoreId
from warren.cluster.reads import MOMENTS, Reads
from warren.cluster.settings import Rules, Settings
from warren.cluster.this_node import ThisNode

SHARDS = 64
TICK_SECONDS = 0.05


def test_each_record_is_read_once_in_an_interval_and_many_at_a_moment() -> None:
    settings = Settings()
    node = ThisNode(Leadership(StoreId("a"), RunId("1")), settings, Rules(), lambda: 1)
    shards = [Reads(node, number, 0.0) for number in range(SHARDS)]
    ticks: dict[int, list[int]] = {}
    begin = round(settings.ask_again / TICK_SECONDS)
    interval = round(settings.record_read_every / TICK_SECONDS)
    for tick in range(1, begin + 2 * interval + 1):
        now = tick * TICK_SECONDS
        for reads in shards:
            if reads.is_due(now, wants_news=False):
                reads.ask(1, None, now)
                node.etcd.answered()
                if tick > begin + interval:
                    ticks.setdefault(tick, []).append(reads.shard)
    assert sorted(itertools.chain(*ticks.values())) == list(range(SHARDS))
    assert len(ticks) == MOMENTS
