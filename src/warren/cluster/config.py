"""The record of a shard, and every legal change of it.

The record says who leads, in which epoch, and which stores have all that was confirmed. It is kept in etcd
and only ever changed by a compare-and-swap on its revision. What is written is made by one of the functions
here, from the record that was read. Each of them checks what it makes; a change that is not legal raises
`IllegalChange`.

What always holds of a record: the in-sync set is part of the replicas and has at least `min_in_sync` stores,
unless that was raised later, or an operator had a store lead that was not in sync (`force`);
the leader is in it; a store that joins is no replica yet; a store that leaves still is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, NewType

StoreId = NewType("StoreId", str)  # a data directory; a wiped disk gets another one
RunId = NewType("RunId", str)  # one life of a process

REPLICAS_MAX = 15
ID_LENGTH_MAX = 64
EPOCH_MAX = 2**63 - 1


class IllegalChange(Exception):
    """A change that the rules of a shard's record do not allow."""


class BadRecord(Exception):
    """What etcd has is no record of a shard."""


class Leadership(NamedTuple):
    """Who leads: a store, in one run of its process."""

    store: StoreId
    run: RunId


class ShardRecord(NamedTuple):
    epoch: int  # of the leader: the number of its term; 0 before the first one
    leader: Leadership | None  # None before the first one
    replicas: tuple[StoreId, ...]  # that keep the shard; the first is the preferred leader
    isr: tuple[StoreId, ...]  # of these, those that have all that was confirmed
    joining: tuple[StoreId, ...] = ()  # that will be replicas when they have everything
    leaving: tuple[StoreId, ...] = ()  # replicas that a joining store will stand in for
    adds: int = 0  # how many stores have ever begun to join


class Known(NamedTuple):
    """A record as it was read, and etcd's revision of it."""

    revision: int
    record: ShardRecord


def create(replicas: tuple[StoreId, ...], *, min_in_sync: int) -> ShardRecord:
    """The first record of a shard: all its stores are empty, so all are in sync."""
    return _checked(ShardRecord(0, None, replicas, replicas), min_in_sync)


def elect(record: ShardRecord, candidate: Leadership) -> ShardRecord:
    """A member of the in-sync set becomes the leader, in a new epoch."""
    if candidate.store not in record.isr:
        raise IllegalChange(f"{candidate.store} is not in sync, so it cannot lead")
    return record._replace(epoch=record.epoch + 1, leader=candidate)


def hand_over(
    record: ShardRecord,
    successor: Leadership,
    *,
    for_good: bool = False,
    leaves: bool = False,
    min_in_sync: int = 1,
) -> ShardRecord:
    """The leader makes another member of the in-sync set the leader, in a new epoch; `for_good`, if it is the
    preferred leader from now on. If the leader's process is about to end, it leaves the in-sync set as well.
    """
    if record.leader is None or record.leader.store == successor.store:
        raise IllegalChange("there is no other leader to take over from")
    made = elect(record, successor)
    if for_good:
        made = made._replace(replicas=(successor.store, *_without(record.replicas, {successor.store})))
    if leaves:
        made = made._replace(isr=_without(record.isr, {record.leader.store}))
    return _checked(made, min_in_sync, record)


def shrink(record: ShardRecord, gone: frozenset[StoreId], *, min_in_sync: int) -> ShardRecord:
    """Stores leave the in-sync set. They are replicas still, and can come back."""
    if not gone or not gone.issubset(record.isr):
        raise IllegalChange("only stores that are in sync can leave the in-sync set")
    return _checked(record._replace(isr=_without(record.isr, gone)), min_in_sync, record)


def admit(record: ShardRecord, store: StoreId, *, min_in_sync: int) -> ShardRecord:
    """A replica, or a store that joins without another one's leaving, gets into the in-sync set."""
    if store in record.isr:
        raise IllegalChange(f"{store} is in sync already")
    if store in record.replicas:
        return _checked(record._replace(isr=(*record.isr, store)), min_in_sync, record)
    if store not in record.joining:
        raise IllegalChange(f"{store} does not keep this shard")
    return _checked(
        record._replace(
            replicas=(*record.replicas, store),
            isr=(*record.isr, store),
            joining=_without(record.joining, {store}),
        ),
        min_in_sync,
        record,
    )


def swap(record: ShardRecord, joiner: StoreId, leaver: StoreId, *, min_in_sync: int) -> ShardRecord:
    """A store that has joined stands in for one that leaves, at its place among the replicas."""
    if joiner not in record.joining or leaver not in record.leaving:
        raise IllegalChange(f"{joiner} does not stand in for {leaver}")
    return _checked(
        record._replace(
            replicas=tuple(joiner if store == leaver else store for store in record.replicas),
            isr=(*_without(record.isr, {leaver}), joiner),
            joining=_without(record.joining, {joiner}),
            leaving=_without(record.leaving, {leaver}),
        ),
        min_in_sync,
        record,
    )


def add(
    record: ShardRecord, store: StoreId, *, instead_of: StoreId | None = None, min_in_sync: int
) -> ShardRecord:
    """A store begins to join, perhaps in place of a replica."""
    if store in record.replicas or store in record.joining:
        raise IllegalChange(f"{store} keeps this shard already")
    leaving = record.leaving
    if instead_of is not None:
        if instead_of not in record.replicas or instead_of in leaving:
            raise IllegalChange(f"{instead_of} cannot be replaced")
        leaving = (*leaving, instead_of)
    joining = (*record.joining, store)
    made = record._replace(joining=joining, leaving=leaving, adds=record.adds + 1)
    return _checked(made, min_in_sync, record)


def remove(record: ShardRecord, store: StoreId, *, min_in_sync: int) -> ShardRecord:
    """A store does not keep the shard any more: it was joining, or others in sync are enough. If it was to
    join in place of another one, that one stays.
    """
    if store not in record.replicas and store not in record.joining:
        raise IllegalChange(f"{store} does not keep this shard")
    if record.leader is not None and record.leader.store == store:
        raise IllegalChange(f"{store} leads")
    gone = {store}
    joining, leaving = _without(record.joining, gone), _without(record.leaving, gone)
    return _checked(
        record._replace(
            replicas=_without(record.replicas, gone),
            isr=_without(record.isr, gone),
            joining=joining,
            leaving=leaving[: len(joining)] if store in record.joining else leaving,
        ),
        min_in_sync,
        record,
    )


def force(record: ShardRecord, leader: Leadership) -> ShardRecord:
    """An operator makes a replica the leader that is not in sync, since all stores that are in sync are lost:
    what was confirmed and this one lacks is lost as well. It alone is in sync then. No rule of the protocol
    makes this change, so it is none of the named ones.
    """
    if leader.store not in record.replicas or leader.store in record.isr:
        raise IllegalChange(f"{leader.store} keeps no copy that is out of sync")
    return _checked(record._replace(epoch=record.epoch + 1, leader=leader, isr=(leader.store,)), 1)


def check(record: ShardRecord, *, min_in_sync: int) -> None:
    """Raise `IllegalChange` unless all holds that always holds of a record."""
    replicas = set(record.replicas)
    if len(replicas) != len(record.replicas) or len(set(record.isr)) != len(record.isr):
        raise IllegalChange("a store is named twice")
    if len(record.replicas) > REPLICAS_MAX or len(set(record.joining)) > REPLICAS_MAX:
        raise IllegalChange(f"a shard has at most {REPLICAS_MAX} replicas")
    if not replicas.issuperset(record.isr) or not replicas.issuperset(record.leaving):
        raise IllegalChange("a store is in sync, or leaves, that is no replica")
    if not replicas.isdisjoint(record.joining) or len(set(record.joining)) != len(record.joining):
        raise IllegalChange("a store that joins is a replica already")
    if len(record.isr) < min_in_sync:
        raise IllegalChange(f"fewer than {min_in_sync} stores would be in sync")
    if record.leader is not None and record.leader.store not in record.isr:
        raise IllegalChange("the leader would not be in sync")
    if not 0 <= record.epoch <= EPOCH_MAX or (record.epoch > 0) != (record.leader is not None):
        raise IllegalChange("an epoch has a leader, and a leader an epoch")


def named_change(old: ShardRecord, new: ShardRecord, *, min_in_sync: int) -> str | None:
    """Which of the changes that the protocol makes leads from the one record to the other; None if none of
    them does.
    """
    if old == new:
        return "touch"  # the same record again: only its revision is another
    for name, made in _changes(old, new, min_in_sync):
        if made == new:
            return name
    return None


def _changes(old: ShardRecord, new: ShardRecord, least: int) -> Iterator[tuple[str, ShardRecord]]:
    """All changes of the old record that could have led to the new one."""
    attempts: list[tuple[str, Callable[[], ShardRecord]]] = []
    if new.leader is not None:
        attempts.append(("elect", partial(elect, old, new.leader)))
        attempts.extend(
            (
                "hand over",
                partial(hand_over, old, new.leader, for_good=for_good, leaves=leaves, min_in_sync=least),
            )
            for for_good in (True, False)
            for leaves in (True, False)
        )
    gone = frozenset(old.isr) - frozenset(new.isr)
    attempts.append(("shrink", partial(shrink, old, gone, min_in_sync=least)))
    for store in (*old.replicas, *old.joining):
        attempts.append(("admit", partial(admit, old, store, min_in_sync=least)))
        attempts.append(("remove", partial(remove, old, store, min_in_sync=least)))
        attempts.extend(
            ("swap", partial(swap, old, store, leaver, min_in_sync=least)) for leaver in old.leaving
        )
    for store in new.joining:
        attempts.extend(
            ("add", partial(add, old, store, instead_of=leaver, min_in_sync=least))
            for leaver in (None, *new.leaving)
        )
    for name, attempt in attempts:
        try:
            yield name, attempt()
        except IllegalChange:
            continue


def record_text(record: ShardRecord) -> str:
    """The record as etcd keeps it."""
    leader = record.leader
    return json.dumps(
        {
            "epoch": record.epoch,
            "leader": None if leader is None else {"store": leader.store, "run": leader.run},
            "replicas": record.replicas,
            "isr": record.isr,
            "joining": record.joining,
            "leaving": record.leaving,
            "adds": record.adds,
        }
    )


def read_record(text: str | bytes) -> ShardRecord:
    """The record that this text stands for. Names that are not known are passed over: a later version's."""
    try:
        value = json.loads(text)
        leader = value["leader"]
        record = ShardRecord(
            _number(value["epoch"]),
            None
            if leader is None
            else Leadership(StoreId(_name(leader["store"])), RunId(_name(leader["run"]))),
            _stores(value["replicas"]),
            _stores(value["isr"]),
            _stores(value.get("joining", [])),
            _stores(value.get("leaving", [])),
            _number(value.get("adds", 0)),
        )
        check(record, min_in_sync=1)
    except (ValueError, TypeError, KeyError, RecursionError, IllegalChange) as error:
        raise BadRecord(f"no record of a shard: {error!r}") from error
    return record


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("an epoch is a number")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= ID_LENGTH_MAX:
        raise TypeError("an id is a short text")
    return value


def _stores(value: object) -> tuple[StoreId, ...]:
    if not isinstance(value, list):
        raise TypeError("stores are a list")
    return tuple(StoreId(_name(store)) for store in value)


def _without(stores: tuple[StoreId, ...], gone: set[StoreId] | frozenset[StoreId]) -> tuple[StoreId, ...]:
    return tuple(store for store in stores if store not in gone)


def _checked(record: ShardRecord, min_in_sync: int, before: ShardRecord | None = None) -> ShardRecord:
    """If fewer were in sync before than the settings ask for by now, there must not be fewer still."""
    least = min_in_sync if before is None else min(min_in_sync, len(before.isr))
    check(record, min_in_sync=least)
    return record
