"""Which shard a queue gets, which stores keep a shard, and what is to be moved.

Placement is even when no store keeps, and none leads, more than one shard more than another. Moves are
proposed one at a time for each store that gets something, so that a new store is not buried under copies. Any
node can work all of it out from the records; etcd decides whose proposal is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from warren.cluster.config import ShardRecord, StoreId

SHARDS_MAX = 1024


class Locator(Enum):
    """Where a queue's leader should be: `x-queue-leader-locator`."""

    CLIENT_LOCAL = "client-local"  # at the node that the declaring client is connected to
    BALANCED = "balanced"  # where the fewest queues are


class Move(NamedTuple):
    """A store gets a copy of a shard, in place of another one."""

    shard: int
    to: StoreId
    instead_of: StoreId


class HandOver(NamedTuple):
    """Another store that is in sync should lead a shard."""

    shard: int
    to: StoreId


def shard_for_queue(
    locator: Locator,
    here: StoreId,
    leaders: Mapping[int, StoreId | None],
    queues: Mapping[int, int],
) -> int:
    """The shard of a new queue: by who leads which shard, and how many queues each shard has."""
    if not leaders:
        raise ValueError("there are no shards")
    candidates: Sequence[int] = sorted(leaders)
    if locator is Locator.CLIENT_LOCAL:
        candidates = [shard for shard in candidates if leaders[shard] == here] or candidates
        return min(candidates, key=lambda shard: (queues.get(shard, 0), shard))
    load: Counter[StoreId | None] = Counter()
    for shard, leader in leaders.items():
        load[leader] += queues.get(shard, 0)
    return min(candidates, key=lambda shard: (load[leaders[shard]], queues.get(shard, 0), shard))


def first_replicas(stores: Sequence[StoreId], *, shards: int, replicas: int) -> list[tuple[StoreId, ...]]:
    """Who keeps which shard of a new cluster. The first of each is its preferred leader.

    Each shard goes to the stores that keep the fewest so far, and of these to such that have kept the fewest
    together: the shards of a store that fails are spread over all others.
    """
    if not 0 < shards <= SHARDS_MAX or not 0 < replicas <= len(stores):
        raise ValueError("there are too few stores, or too many shards")
    kept: Counter[StoreId] = Counter()
    together: Counter[frozenset[StoreId]] = Counter()
    records: dict[int, ShardRecord] = {}
    for shard in range(shards):
        chosen: list[StoreId] = []
        for _ in range(replicas):
            rest = [store for store in stores if store not in chosen]
            store = min(rest, key=partial(_load, kept, together, chosen))
            together.update(frozenset((store, other)) for other in chosen)
            kept[store] += 1
            chosen.append(store)
        records[shard] = ShardRecord(0, None, tuple(chosen), tuple(chosen))
    leaders = preferred(records, stores)
    return [
        (leaders[shard], *(store for store in record.replicas if store != leaders[shard]))
        for shard, record in records.items()
    ]


def _load(
    kept: Counter[StoreId], together: Counter[frozenset[StoreId]], chosen: list[StoreId], store: StoreId
) -> tuple[int, int]:
    return kept[store], sum(together[frozenset((store, other))] for other in chosen)


def moves(records: Mapping[int, ShardRecord], stores: Sequence[StoreId], *, under_way: int = 0) -> list[Move]:
    """What is to be moved next, so that the numbers of copies differ by one at the most.

    `stores` are those that are there and stay. A copy on another store is moved first. `under_way` is how
    many moves are being made already.
    """
    kept: dict[StoreId, int] = dict.fromkeys(stores, 0)
    for record in records.values():
        for store in (*record.replicas, *record.joining):
            if store in kept and store not in record.leaving:
                kept[store] += 1
    if not kept or under_way >= len(kept):
        return []
    found: list[Move] = []
    taken: set[StoreId] = set()  # stores that get something: one copy at a time
    for shard, record in sorted(records.items(), key=lambda item: (_is_whole(item[1], kept), item[0])):
        if record.joining or record.leaving:
            taken.update(store for store in record.joining if store in kept)
            continue
        move = _move(shard, record, kept, taken)
        if move is not None:
            found.append(move)
            taken.add(move.to)
            kept[move.to] += 1
            if move.instead_of in kept:
                kept[move.instead_of] -= 1
    return found


def _is_whole(record: ShardRecord, kept: Mapping[StoreId, int]) -> bool:
    return all(store in kept for store in record.replicas)


def _move(shard: int, record: ShardRecord, kept: Mapping[StoreId, int], taken: set[StoreId]) -> Move | None:
    free = [store for store in kept if store not in record.replicas and store not in taken]
    if not free:
        return None
    to = min(free, key=lambda store: (kept[store], store))
    lost = [store for store in record.replicas if store not in kept]
    if lost:
        return Move(shard, to, lost[0])
    fullest = max(record.replicas, key=lambda store: (kept[store], store))
    return Move(shard, to, fullest) if kept[fullest] - kept[to] > 1 else None


def preferred(records: Mapping[int, ShardRecord], stores: Sequence[StoreId]) -> dict[int, StoreId]:
    """Who should lead each shard, so that the numbers of led shards differ by one where copies allow it.

    The first replica is preferred. Where that would be uneven, leaderships are passed on along stores that
    keep a common shard, until nobody leads two more than another that could have one of them.
    """
    there = set(stores)
    led: dict[StoreId, set[int]] = {store: set() for store in stores}
    chosen: dict[int, StoreId] = {}
    for shard, record in sorted(records.items()):
        able = [store for store in record.replicas if store in there]
        if able:
            chosen[shard] = able[0]
            led[able[0]].add(shard)
    for _ in range(len(records) * max(len(stores), 1)):
        path = _path(records, led)
        if path is None:
            break
        for shard, giver, taker in path:
            led[giver].discard(shard)
            led[taker].add(shard)
            chosen[shard] = taker
    return chosen


def _path(
    records: Mapping[int, ShardRecord], led: Mapping[StoreId, set[int]]
) -> list[tuple[int, StoreId, StoreId]] | None:
    """Hand-overs along which a store that leads too much gives one shard to a store that leads too little."""
    for start in sorted(led, key=lambda store: (-len(led[store]), store)):
        came_from: dict[StoreId, tuple[int, StoreId]] = {}
        reached = [start]
        for store in reached:  # grows while it is walked: a search in breadth
            for shard in sorted(led[store]):
                for taker in records[shard].replicas:
                    if taker in led and taker != start and taker not in came_from:
                        came_from[taker] = (shard, store)
                        reached.append(taker)
        for end in reached[1:]:
            if len(led[start]) - len(led[end]) > 1:
                return _way(came_from, start, end)
    return None


def _way(
    came_from: Mapping[StoreId, tuple[int, StoreId]], start: StoreId, end: StoreId
) -> list[tuple[int, StoreId, StoreId]]:
    way: list[tuple[int, StoreId, StoreId]] = []
    taker = end
    while taker != start:
        shard, giver = came_from[taker]
        way.append((shard, giver, taker))
        taker = giver
    return way


def hand_overs(records: Mapping[int, ShardRecord], stores: Sequence[StoreId]) -> list[HandOver]:
    """Which shards should be handed over now: the store that should lead is in sync, and does not lead."""
    wanted = preferred(records, stores)
    return [
        HandOver(shard, store)
        for shard, store in sorted(wanted.items())
        if store in records[shard].isr
        and (leader := records[shard].leader) is not None
        and leader.store != store
    ]
