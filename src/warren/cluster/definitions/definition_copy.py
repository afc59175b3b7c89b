"""A node's copy of all definitions in etcd, at one revision, and which of them are alive.

A definition is alive if all that it hangs on is alive, and is what it was when the definition was made. What
is dead stays dead: revisions never come again. What always holds: two copies at the same revision are equal,
whatever way they came there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from warren.broker.commands import Command
from warren.cluster.definitions.definition import (
    ORDER,
    PLACES_MAX,
    Definition,
    may_be_absent,
    needs_of,
    path_of,
    queue_number,
    read_definition,
    says_the_same,
)
from warren.cluster.transactions import KeyValue
from warren.storage.definition_keys import REPLACING, Key, PermissionsKey, TopicPermissionsKey, key_of

QUEUE_PATHS = "queue/"  # with this the paths of all queues begin
ASSUMED = -1  # the revision of what is known from the node's own disk


@dataclass(slots=True)
class Record:
    """One definition."""

    path: str  # its key in etcd, behind the prefix
    key: Key  # what it is about
    definition: Definition
    create_revision: int
    mod_revision: int
    alive: bool = True

    @property
    def number(self) -> int:
        """Of a queue."""
        return queue_number(self.create_revision, self.definition.place)

    def is_same_as(self, newer: Record) -> bool:
        """Whether what it makes is still there, perhaps changed, in the newer record."""
        if self.create_revision != ASSUMED:
            return self.create_revision == newer.create_revision
        command = self.definition.command
        return type(command) in REPLACING or says_the_same(command, newer.definition.command)


@dataclass(slots=True)
class Difference:
    """What a step has changed among the definitions that are alive."""

    removed: list[Record] = field(default_factory=list)  # what hangs on something comes before that
    put: list[Record] = field(default_factory=list)  # what hangs on something comes behind that
    died: list[Record] = field(default_factory=list)  # what is still in etcd, and not alive any more

    def is_empty(self) -> bool:
        return not (self.removed or self.put or self.died)


class QueuesInShards:
    """The queues that are alive and in a shard: how many there are, and of which numbers, is known at once,
    however many definitions there are.
    """

    def __init__(self) -> None:
        self._by_number: dict[int, Record] = {}
        self._by_shard: dict[int, dict[int, Record]] = {}  # by shard, then by number

    def find(self, number: int) -> Record | None:
        return self._by_number.get(number)

    def of(self, shard: int) -> list[Record]:
        """In the order in which this node has heard of them."""
        return list(self._by_shard.get(shard, {}).values())

    def count(self, shard: int) -> int:
        return len(self._by_shard.get(shard, ()))

    def add(self, record: Record) -> None:
        """A definition is alive, of whatever it is."""
        shard = record.definition.shard
        if shard is not None:
            self._by_number[record.number] = record
            self._by_shard.setdefault(shard, {})[record.number] = record

    def discard(self, record: Record) -> None:
        """A definition is dead or gone."""
        shard = record.definition.shard
        if shard is not None and self._by_number.pop(record.number, None) is not None:
            del self._by_shard[shard][record.number]


class DefinitionCopy:
    def __init__(self) -> None:
        self.records: dict[str, Record] = {}  # by path, also those that are dead
        self.in_shards = QueuesInShards()  # those of these that are queues in shards, and alive
        self.hanging: dict[str, set[str]] = {}  # by path: those that hang on it
        self.unreadable: dict[str, str] = {}  # by path: why a value is not understood here
        self.revision = 0  # of etcd; all changes up to it are here
        self.count = 0  # how many changes there were, by the version of `LAST`

    def find(self, path: str) -> Record | None:
        """The definition, if it is alive."""
        record = self.records.get(path)
        return record if record is not None and record.alive else None

    def may_have_queue(self, number: int) -> bool:
        """Whether a queue in a shard has this number, or may have it: it is newer than this copy."""
        return self.in_shards.find(number) is not None or number // PLACES_MAX > self.revision

    @property
    def has_unreadable_queues(self) -> bool:
        """Whether there are queues that only a later version of WarrenMQ understands."""
        return any(path.startswith(QUEUE_PATHS) for path in self.unreadable)

    def dead(self) -> list[Record]:
        return [record for record in self.records.values() if not record.alive]

    # --- a step ---

    def take(self, changes: Iterable[tuple[str, KeyValue | None]]) -> Difference:
        """The changes of one revision."""
        found = Difference()
        new: list[Record] = []
        gone: list[str] = []
        for path, kv in changes:
            old = self._remove(path)
            record = None if kv is None else self._read(path, kv)
            if record is not None:
                self._add(record)
                new.append(record)
            if old is not None and (record is None or record.create_revision != old.create_revision):
                gone.append(path)
                if old.alive:
                    found.removed.append(old)
        for path in gone:
            self._end_hanging(path, found.died)
        for record in sorted(new, key=_order):
            record.alive = self._hangs_well(record)
            if record.alive:
                self.in_shards.add(record)
                found.put.append(record)
        found.removed.sort(key=_order, reverse=True)
        return found

    def _end_hanging(self, path: str, died: list[Record]) -> None:
        pending = [path]
        while pending:
            for hanging in self.hanging.get(pending.pop(), ()):
                record = self.records[hanging]
                if record.alive and not self._hangs_well(record):
                    record.alive = False
                    self.in_shards.discard(record)
                    died.append(record)
                    pending.append(hanging)

    def _hangs_well(self, record: Record) -> bool:
        """Whether all that it hangs on is alive, and is what it was."""
        needs = needs_of(record.key)
        if len(needs) != len(record.definition.on):
            return False
        for need, revision in zip(needs, record.definition.on, strict=True):
            if revision == 0 and may_be_absent(need, record.key):
                continue
            found = self.records.get(path_of(need))
            if found is None or not found.alive or found.create_revision != revision:
                return False
        return True

    # --- all anew ---

    def assume(self, commands: Iterable[tuple[Command, int]]) -> None:
        """What the node's own disk has: a start, to which the first load is compared. A queue has a number;
        that tells its revision.
        """
        for command, number in commands:
            revision, place = divmod(number, PLACES_MAX) if number else (ASSUMED, 0)
            key = key_of(command)
            definition = Definition(command=command, place=place)
            self._add(Record(path_of(key), key, definition, revision, ASSUMED))

    def load(self, kvs: Iterable[tuple[str, KeyValue]]) -> Difference:
        """Everything as it is at one revision; what that changes."""
        old = {path: record for path, record in self.records.items() if record.alive}
        self.records, self.hanging, self.unreadable = {}, {}, {}
        self.in_shards = QueuesInShards()
        for path, kv in kvs:
            record = self._read(path, kv)
            if record is not None:
                self._add(record)
        found = Difference()
        kept: set[str] = set()
        for record in sorted(self.records.values(), key=_order):
            record.alive = self._hangs_well(record)
            if not record.alive:
                continue
            self.in_shards.add(record)
            before = old.get(record.path)
            if before is not None and before.is_same_as(record) and self._is_kept(record, kept):
                kept.add(record.path)
                if not says_the_same(before.definition.command, record.definition.command):
                    found.put.append(record)
            else:
                found.put.append(record)
        found.removed = sorted((old[path] for path in old.keys() - kept), key=_order, reverse=True)
        return found

    def _is_kept(self, record: Record, kept: set[str]) -> bool:
        """Whether nothing that the record hangs on has to be made anew."""
        return all(path_of(need) in kept for need in record.key.needs)

    # --- records ---

    def _read(self, path: str, kv: KeyValue) -> Record | None:
        self.unreadable.pop(path, None)
        try:
            definition = read_definition(kv.value)
            key = key_of(definition.command)
        except (ValueError, KeyError, ArithmeticError, RecursionError) as error:
            self.unreadable[path] = str(error)
            return None
        if path_of(key) != path:
            self.unreadable[path] = f"it is a definition of {path_of(key)}"
            return None
        return Record(path, key, definition, kv.create_revision, kv.mod_revision)

    def _add(self, record: Record) -> None:
        self.records[record.path] = record
        for need in needs_of(record.key):
            self.hanging.setdefault(path_of(need), set()).add(record.path)

    def _remove(self, path: str) -> Record | None:
        record = self.records.pop(path, None)
        if record is not None:
            self.in_shards.discard(record)
            for need in needs_of(record.key):
                hanging = self.hanging[path_of(need)]
                hanging.discard(path)
                if not hanging:
                    del self.hanging[path_of(need)]
        return record


def _order(record: Record) -> int:
    return ORDER[type(record.key)]


def is_permission(record: Record) -> bool:
    return isinstance(record.key, PermissionsKey | TopicPermissionsKey)
