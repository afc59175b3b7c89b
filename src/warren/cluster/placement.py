"""Which shard a queue gets, which stores keep a shard, and what is to be moved.

Placement is even when no store keeps, and none leads, more than one shard more than another. Moves are
proposed one at a time for each store that gets something, so that a new store is not buried under copies. Any
node can work all of it out from the records; etcd decides whose proposal is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, IntEnum
from functools import partial
from typing import NamedTuple

from warren.cluster import config
from warren.cluster.config import IllegalChange, ShardRecord, StoreId

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


class Stores(NamedTuple):
    """The stores of a cluster, as whoever places shards on them knows them. One that is neither staying nor
    gone is not known yet: it keeps what it has.
    """

    staying: tuple[StoreId, ...]  # that are there, or will come back
    able: frozenset[StoreId]  # those of them that can get copies now
    gone: frozenset[StoreId]  # that never come back, or must keep nothing


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
    together: the shards of a store that fails are spread over all others. The second of each takes over if
    the first fails, so the shards of a leader have different ones.
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
    heirs: Counter[tuple[StoreId, StoreId]] = Counter()  # how often one store comes behind another
    placed: list[tuple[StoreId, ...]] = []
    for shard, record in records.items():
        leader = leaders[shard]
        others = [store for store in record.replicas if store != leader]
        others.sort(key=lambda store, leader=leader: heirs[leader, store])  # type: ignore[misc]
        heirs.update((leader, heir) for heir in others[:1])
        placed.append((leader, *others))
    return placed


def _load(
    kept: Counter[StoreId], together: Counter[frozenset[StoreId]], chosen: list[StoreId], store: StoreId
) -> tuple[int, int]:
    return kept[store], sum(together[frozenset((store, other))] for other in chosen)


def alive_for_others(records: Iterable[ShardRecord], *, min_in_sync: int) -> frozenset[StoreId]:
    """Stores that a leader has not counted out, though it could: they are there, whoever cannot see them."""
    return frozenset(store for record in records if len(record.isr) > min_in_sync for store in record.isr)


def changes(
    records: Mapping[int, ShardRecord], stores: Stores, *, min_in_sync: int
) -> dict[int, ShardRecord]:
    """How records should change now: moves that cannot end are given up, others are begun."""
    made: dict[int, ShardRecord] = {}
    for shard, record in records.items():
        lost = [store for store in record.joining if store in stores.gone]
        with suppress(IllegalChange):  # fewer are in sync than the settings ask for by now
            if lost:
                made[shard] = config.remove(record, lost[0], min_in_sync=min_in_sync)
    for move in moves(records, stores, min_in_sync=min_in_sync):
        with suppress(IllegalChange):
            made[move.shard] = config.add(
                records[move.shard], move.to, instead_of=move.instead_of, min_in_sync=min_in_sync
            )
    return made


def moves(records: Mapping[int, ShardRecord], stores: Stores, *, min_in_sync: int = 1) -> list[Move]:
    """What is to be moved next: copies off stores that are gone, first of all those of shards that cannot go
    on without, and then what makes the numbers of copies differ by one at the most.
    """
    loads = _Loads(records, stores)
    found: list[Move] = []
    order = [
        (_urgency(record, stores.gone, min_in_sync), shard)
        for shard, record in records.items()
        if not record.joining and not record.leaving
    ]
    for urgency, shard in sorted(order):
        move = loads.move(shard, records[shard], urgency)
        if move is not None:
            found.append(move)
            loads.note(move)
    return found


class _Urgency(IntEnum):
    CLOSED = 0  # too few stores in sync are left: the shard waits for one that joins
    LOST = 1  # a replica is gone
    UNEVEN = 2  # nothing is wrong, but perhaps its stores have too much


def _urgency(record: ShardRecord, gone: frozenset[StoreId], min_in_sync: int) -> _Urgency:
    if gone.isdisjoint(record.replicas):
        return _Urgency.UNEVEN
    left = [store for store in record.isr if store not in gone]
    return _Urgency.CLOSED if len(left) < min_in_sync else _Urgency.LOST


class _Loads:
    """How many copies each store has, and who gets one now."""

    def __init__(self, records: Mapping[int, ShardRecord], stores: Stores) -> None:
        self.stores = stores
        self.kept: dict[StoreId, int] = dict.fromkeys(stores.staying, 0)
        self.taken: set[StoreId] = set()  # stores that get something: one copy at a time
        for record in records.values():
            self.taken.update(record.joining)
            for store in (*record.replicas, *record.joining):
                if store in self.kept and store not in record.leaving:
                    self.kept[store] += 1

    def move(self, shard: int, record: ShardRecord, urgency: _Urgency) -> Move | None:
        free = [store for store in self.stores.able if store not in record.replicas]
        ready = [store for store in free if store not in self.taken]
        if not ready:
            return None
        to = min(ready, key=lambda store: (self.kept[store], store))
        if urgency is not _Urgency.CLOSED and self.kept[to] > 1 + min(self.kept[store] for store in free):
            return None  # a store that has much less is busy, and gets this one next
        leaver = self._leaver(record, to, urgency)
        return None if leaver is None else Move(shard, to, leaver)

    def _leaver(self, record: ShardRecord, to: StoreId, urgency: _Urgency) -> StoreId | None:
        if urgency is not _Urgency.UNEVEN:
            return next(store for store in record.replicas if store in self.stores.gone)
        if len(record.isr) < len(record.replicas):
            return None  # one of them catches up: two copies at once would be too much
        leads = None if record.leader is None else record.leader.store
        there = [store for store in record.replicas if store in self.kept]
        fullest = max(there, key=lambda store: (self.kept[store], store != leads, store), default=None)
        return fullest if fullest is not None and self.kept[fullest] - self.kept[to] > 1 else None

    def note(self, move: Move) -> None:
        self.taken.add(move.to)
        self.kept[move.to] += 1
        if move.instead_of in self.kept:
            self.kept[move.instead_of] -= 1


def preferred(records: Mapping[int, ShardRecord], stores: Sequence[StoreId]) -> dict[int, StoreId]:
    """Who should lead each shard, so that the numbers of led shards differ by one where copies allow it.

    The first replica is preferred. Where that would be uneven, leaderships are passed on along stores that
    keep a common shard, until nobody leads two more than another that could have one of them.
    """
    there = set(stores)
    led: dict[StoreId, set[int]] = {store: set() for store in stores}
    chosen: dict[int, StoreId] = {}
    for shard, record in sorted(records.items()):
        able = [store for store in record.replicas if store in there and store not in record.leaving]
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
                    if taker in records[shard].leaving:
                        continue
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
