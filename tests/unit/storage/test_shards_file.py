"""What a store remembers of its shards: its own id, and the highest epochs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.shard_machine import ShardMachine
from warren.storage import shards_file
from warren.storage.shards_file import SHARDS_FILE, read_shard_notes
from warren.storage.store import StorageSettings


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ShardMachine]:
    made = ShardMachine(tmp_path / "a")
    yield made
    made.close()


def test_store_id_is_made_once_and_kept(machine: ShardMachine) -> None:
    store_id = machine.shards.store_id
    assert len(store_id) == 32
    machine.restart()
    assert machine.shards.store_id == store_id
    machine.cut_power(Random(1))
    machine.start()
    assert machine.shards.store_id == store_id


def test_epoch_is_known_after_a_power_cut_once_its_round_is_over(machine: ShardMachine) -> None:
    machine.shards.note_epoch(3, 7)
    machine.shards.note_epoch(4, 2)
    machine.shards.note_epoch(3, 6)
    assert machine.shards.epoch_of(3) == 7
    safe: list[int] = []
    machine.store.commit.when_safe(safe.append)
    assert safe == []
    machine.settle()
    assert len(safe) == 1
    machine.lose_all_unsynced()
    machine.start()
    assert [machine.shards.epoch_of(shard) for shard in (3, 4, 5)] == [7, 2, 0]


def test_batch_of_an_epoch_is_not_safe_before_the_epoch_is(machine: ShardMachine) -> None:
    machine.settle()
    machine.shards.note_epoch(3, 9)
    safe = machine.apply([])
    while not safe:
        least = machine.platter.least()
        known = least[SHARDS_FILE]
        assert isinstance(known, bytes)
        machine.finish_round()
    assert read_shard_notes(machine.data).epochs == {3: 9}
    machine.lose_all_unsynced()
    machine.start()
    assert machine.shards.epoch_of(3) == 9


def test_torn_last_line_is_passed_over(machine: ShardMachine) -> None:
    machine.shards.note_epoch(3, 7)
    machine.stop()
    with (machine.data / SHARDS_FILE).open("ab") as file:
        file.write(b'0badc0de {"shard": 3, "ep')
    store_id = machine.shards.store_id
    machine.start()
    assert (machine.shards.epoch_of(3), machine.shards.store_id) == (7, store_id)


def test_damaged_line_in_the_middle_makes_it_another_store(machine: ShardMachine) -> None:
    machine.shards.note_epoch(3, 7)
    machine.settle()
    machine.shards.note_epoch(4, 7)
    machine.stop()
    store_id = machine.shards.store_id
    file = machine.data / SHARDS_FILE
    file.write_bytes(file.read_bytes().replace(b'"shard": 3', b'"shard": 2'))
    machine.start()
    assert machine.shards.store_id != store_id
    assert machine.shards.epoch_of(4) == 0
    assert "the store gets a new id: it is no member of any shard now" in machine.told


@pytest.mark.parametrize("power", [True, False])
def test_store_that_did_not_sync_is_another_one_after_the_machine_went_down(
    tmp_path: Path, power: bool
) -> None:
    machine = ShardMachine(tmp_path / "a")
    machine.stop()
    machine.settings = without_sync(machine.settings)
    machine.start()
    store_id = machine.shards.store_id
    (machine.cut_power if power else machine.kill)(Random(1))
    machine.start()
    assert (machine.shards.store_id != store_id) is power
    machine.close()


def test_store_that_syncs_again_is_still_another_one_if_it_did_not_before(tmp_path: Path) -> None:
    machine = ShardMachine(tmp_path / "a")
    machine.stop()
    with_sync, machine.settings = machine.settings, without_sync(machine.settings)
    machine.start()
    store_id = machine.shards.store_id
    machine.cut_power(Random(1))
    machine.settings = with_sync
    machine.start()
    assert machine.shards.store_id != store_id
    machine.close()


def without_sync(settings: StorageSettings) -> StorageSettings:
    return StorageSettings(
        path=settings.path,
        sync=False,
        segment_bytes=settings.segment_bytes,
        journal_file_bytes=settings.journal_file_bytes,
        boot_id=settings.boot_id,
    )


def test_file_is_written_anew_when_most_lines_are_dead(
    machine: ShardMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_file, "DEAD_LINES_MIN", 5)
    for epoch in range(1, 40):
        machine.shards.note_epoch(3, epoch)
        machine.settle()
    assert (machine.data / SHARDS_FILE).read_bytes().count(b"\n") < 12
    machine.lose_all_unsynced()
    machine.start()
    assert machine.shards.epoch_of(3) == 39


def test_start_without_a_cluster_leaves_shards_as_they_are(machine: ShardMachine) -> None:
    kept = machine.shard_directory / "129" / f"{1:020}.seg"
    kept.parent.mkdir()
    kept.write_bytes(b"whatever")
    machine.stop()
    before = (machine.data / SHARDS_FILE).read_bytes()
    super(ShardMachine, machine).start()
    assert kept.read_bytes() == b"whatever"
    assert (machine.data / SHARDS_FILE).read_bytes() == before
    assert "foreign file" not in machine.told
