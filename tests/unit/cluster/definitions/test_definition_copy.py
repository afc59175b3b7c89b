"""A node's copy of the definitions: which queues are in which shard."""

from __future__ import annotations

from warren.broker.commands import AddVhost, Command, DeclareQueue
from warren.cluster.definitions.definition import PLACES_MAX, Definition, path_of
from warren.cluster.definitions.definition_copy import DefinitionCopy
from warren.cluster.transactions import KeyValue
from warren.storage.definition_keys import key_of

VHOST = AddVhost(name="v")


def queue(name: str) -> DeclareQueue:
    return DeclareQueue(vhost="v", name=name, durable=True)


def put(
    command: Command, revision: int, *, on: tuple[int, ...] = (), shard: int | None = None
) -> tuple[str, KeyValue]:
    """A definition that was made at a revision."""
    path = path_of(key_of(command))
    text = Definition(command=command, on=on, shard=shard).text()
    return path, KeyValue(path, text, revision, revision, 1)


def gone(command: Command) -> tuple[str, None]:
    return path_of(key_of(command)), None


def names(copy: DefinitionCopy, shard: int) -> list[str]:
    commands = [record.definition.command for record in copy.in_shards.of(shard)]
    assert copy.in_shards.count(shard) == len(commands)
    return [command.name for command in commands if isinstance(command, DeclareQueue)]


def test_queues_are_known_by_their_shards_and_numbers() -> None:
    copy = DefinitionCopy()
    copy.take([put(VHOST, 5), put(queue("a"), 5, on=(5,), shard=1), put(queue("here"), 5, on=(5,))])
    copy.take([put(queue("b"), 6, on=(5,), shard=1), put(queue("c"), 6, on=(5,), shard=2)])
    assert (names(copy, 1), names(copy, 2), names(copy, 3)) == (["a", "b"], ["c"], [])
    found = copy.in_shards.find(6 * PLACES_MAX)
    assert found is not None
    copy.take([gone(queue("a"))])
    copy.take([put(queue("a"), 8, on=(5,), shard=2)])
    assert (names(copy, 1), names(copy, 2)) == (["b"], ["c", "a"])
    assert copy.in_shards.find(5 * PLACES_MAX) is None


def test_queues_of_a_vhost_that_is_deleted_are_in_no_shard() -> None:
    copy = DefinitionCopy()
    copy.take([put(VHOST, 5), put(queue("a"), 5, on=(5,), shard=1)])
    copy.take([gone(VHOST)])
    assert names(copy, 1) == []
    copy.take([put(VHOST, 9)])
    assert names(copy, 1) == [], "what is dead stays dead"


def test_queues_in_shards_are_those_of_the_last_load() -> None:
    copy = DefinitionCopy()
    copy.take([put(VHOST, 5), put(queue("a"), 5, on=(5,), shard=1)])
    dead = put(queue("dead"), 6, on=(4,), shard=1)
    copy.load([put(VHOST, 5), put(queue("b"), 6, on=(5,), shard=1), dead])
    assert names(copy, 1) == ["b"]


def test_a_number_above_the_revision_of_the_copy_may_be_that_of_a_queue() -> None:
    copy = DefinitionCopy()
    copy.take([put(VHOST, 5), put(queue("a"), 5, on=(5,), shard=1)])
    copy.revision = 7
    assert copy.may_have_queue(5 * PLACES_MAX)
    assert not copy.may_have_queue(6 * PLACES_MAX + 3)
    assert not copy.may_have_queue(8 * PLACES_MAX - 1)
    assert copy.may_have_queue(8 * PLACES_MAX)


def test_definitions_of_queues_that_are_not_understood_are_noticed() -> None:
    copy = DefinitionCopy()
    path, kv = put(queue("a"), 5, shard=1)
    copy.take([("user/u", KeyValue("user/u", b"{}", 5, 5, 1))])
    assert not copy.has_unreadable_queues
    copy.take([(path, kv._replace(value=b'{"declare_better_queue": {}}'))])
    assert copy.has_unreadable_queues
