"""A data directory is for its owner alone: as it is made, and however it was left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.machine import Machine
from tests.support.privacy import open_to_others
from tests.unit.storage.test_rounds import declare, publish
from warren.storage.files import make_directory
from warren.storage.privacy import make_private


@pytest.fixture(autouse=True)
def _no_umask() -> Iterator[None]:
    """Nothing but the broker itself keeps others from reading."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def used(machine: Machine) -> Machine:
    """With a queue in several segments, priorities and a stream."""
    client = declare(machine, "one", "two")
    for _ in range(5):
        publish(client, "one", "two", body=bytes(900))
        machine.run()
    machine.housekeeping.run()
    return machine


def segments(machine: Machine) -> list[Path]:
    return sorted((machine.data / "queues").glob("*/*.seg"))


def damage_definitions(machine: Machine) -> None:
    file = machine.data / "definitions.log"
    file.write_bytes(file.read_bytes().replace(b"two", b"owt"))


def tear_definitions(machine: Machine) -> None:
    with (machine.data / "definitions.log").open("ab") as file:
        file.write(b"bbb8b0f0 {")


def lose_definitions(machine: Machine) -> None:
    (machine.data / "definitions.log").unlink()


def lose_descriptions(machine: Machine) -> None:
    lose_definitions(machine)
    for description in (machine.data / "queues").glob("*/queue.json"):
        description.unlink()


def damage_records(machine: Machine) -> None:
    for index in (machine.data / "queues").glob("*/*.idx"):
        index.unlink()
    for segment in segments(machine):
        data = bytearray(segment.read_bytes())
        data[100] ^= 1
        segment.write_bytes(data)


def tear_records(machine: Machine) -> None:
    for segment in segments(machine):
        with segment.open("ab") as file:
            file.write(b"torn")


def garble_acks(machine: Machine) -> None:
    for segment in segments(machine):
        segment.with_suffix(".acks").write_bytes(b"garbage")


def lose_indexes(machine: Machine) -> None:
    for index in (machine.data / "queues").glob("*/*.idx"):
        index.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damage_definitions,
        tear_definitions,
        lose_definitions,
        lose_descriptions,
        damage_records,
        tear_records,
        garble_acks,
        lose_indexes,
    ],
)
@pytest.mark.parametrize("end", ["well", "killed", "power cut"])
def test_all_is_private_after_every_kind_of_recovery(
    used: Machine, end: str, damage: Callable[[Machine], None]
) -> None:
    machine = used
    assert open_to_others(machine.data) == set()
    if end == "well":
        machine.stop()
    elif end == "killed":
        machine.kill(Random(0))
    else:
        machine.kill(Random(0))
        machine.platter.replace(machine.platter.least())
        machine.boot()
    damage(machine)
    make_private(map(str, machine.data.rglob("*")), machine.notes.warning)  # but for what is made from now on
    machine.start()
    machine.housekeeping.run()
    machine.run()
    assert open_to_others(machine.data) == set()


def test_a_directory_is_made_with_those_above_it_for_its_owner_alone(tmp_path: Path) -> None:
    make_directory(str(tmp_path / "shards" / "7" / "129"))
    make_directory(str(tmp_path / "shards" / "7" / "129"))
    assert not list(open_to_others(tmp_path / "shards"))


def test_directory_that_an_earlier_version_left_open_is_closed(used: Machine) -> None:
    used.stop()
    used.data.chmod(0o755)
    for path in used.data.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o640)
    count = sum(1 for _ in used.data.rglob("*"))
    used.start()
    assert open_to_others(used.data) == set()
    (told,) = [fields for event, fields in used.notes.lines if "others could get at" in event]
    assert told["files"] == count
    used.stop()
    used.start()
    assert not any("others could" in event for event, _ in used.notes.lines)


@pytest.mark.parametrize("mark", ["lock", "."])
def test_closing_that_was_interrupted_is_done_again(used: Machine, mark: str) -> None:
    used.stop()
    for path in used.data.rglob("*.seg"):
        path.chmod(0o644)
    (used.data / mark).chmod(0o750)
    used.start()
    assert open_to_others(used.data) == set()


def test_definitions_that_somebody_has_put_there_are_closed(used: Machine) -> None:
    used.stop()
    (used.data / "definitions.log").chmod(0o644)
    used.start()
    assert open_to_others(used.data) == set()


def test_files_of_a_closed_directory_are_not_all_looked_at_again(
    used: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a hundred thousand of them."""
    used.stop()
    walked: list[Path] = []

    def walk(path: Path) -> list[str]:
        walked.append(path)
        return []

    monkeypatch.setattr("warren.storage.directory.all_below", walk)
    used.start()
    assert walked == []
    used.stop()
    (used.data / "lock").chmod(0o640)
    used.start()
    names = ("queues", "transient", "journal", "moves", "shards", "diverged")
    assert walked == [used.data / name for name in names]


def test_links_and_what_is_not_the_brokers_are_left_alone(used: Machine, tmp_path: Path) -> None:
    used.stop()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "file").touch(mode=0o644)
    (used.data / "queues" / "link").symlink_to(elsewhere)
    (used.data / "notes.txt").touch(mode=0o644)
    used.data.chmod(0o755)
    used.start()
    assert open_to_others(used.data) == {str(used.data / "notes.txt")}
    assert (elsewhere.stat().st_mode & 0o777, (elsewhere / "file").stat().st_mode & 0o777) == (0o755, 0o644)
    (used.data / "notes.txt").unlink()


def test_directory_that_is_meant_to_be_shared_stays_so_and_that_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    told: list[str] = []
    assert make_private([str(tmp_path)], lambda event, **_fields: told.append(event)) == 0
    assert told == ["cannot make private"]
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    tmp_path.chmod(0o700)
