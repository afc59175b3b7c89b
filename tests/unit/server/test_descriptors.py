"""How connections and files share the descriptors, by count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.machine import Notes
from warren.server.descriptors import FILES_MIN, OWN_MAX, REFUSED_MAX, TELL_SECONDS_MIN, Descriptors
from warren.storage.files import OpenFiles

LIMIT = 1_024


class Sharing:
    def __init__(self, limit: int, files_max: int = 1_000) -> None:
        self.time = 0.0
        self.notes = Notes()
        self.files = OpenFiles(files_max)
        self.descriptors = Descriptors(limit, files_max, self.notes, lambda: self.time)
        self.descriptors.share_with(self.files)

    @property
    def told(self) -> list[str]:
        return [event for event, _ in self.notes.lines]


def test_plenty_of_descriptors_are_as_many_files_as_configured() -> None:
    sharing = Sharing(100_000)
    assert sharing.files.limit == 1_000
    assert not sharing.told


def test_files_get_half_of_what_connections_leave() -> None:
    sharing = Sharing(LIMIT)
    assert sharing.files.limit == (LIMIT - OWN_MAX) // 2
    for _ in range(500):
        assert sharing.descriptors.enter()
    assert sharing.files.limit == (LIMIT - OWN_MAX - 500) // 2
    for _ in range(500):
        sharing.descriptors.leave()
    assert sharing.files.limit == (LIMIT - OWN_MAX) // 2


def test_idle_files_are_closed_as_connections_come(tmp_path: Path) -> None:
    sharing = Sharing(200, files_max=40)
    for number in range(40):
        sharing.files.create(str(tmp_path / str(number)))
    for _ in range(100):
        sharing.descriptors.enter()
    assert list(sharing.files.files) == [str(tmp_path / str(number)) for number in range(40 - 25, 40)]
    sharing.files.close_all()


@pytest.mark.parametrize("limit", [20, 64, 256, LIMIT])
def test_connections_and_files_and_all_else_fit_in_at_any_time(limit: int) -> None:
    sharing = Sharing(limit)
    entered = 0
    while sharing.descriptors.enter():
        entered += 1
        assert entered + max(sharing.files.limit, FILES_MIN) <= sharing.descriptors.room or limit < OWN_MAX
    assert entered == sharing.descriptors.connections_max + REFUSED_MAX


def test_what_others_have_open_counts() -> None:
    sharing = Sharing(LIMIT)
    sharing.descriptors.counters.append(lambda: 800)
    sharing.descriptors.enter()
    assert sharing.files.limit == (LIMIT - OWN_MAX - 801) // 2


def test_a_low_limit_is_told_with_what_to_raise() -> None:
    ((event, fields),) = Sharing(LIMIT).notes.lines
    assert event == "few file descriptors"
    assert fields["limit"] == LIMIT
    assert "ulimit -n" in fields["to_raise"]
    assert "LimitNOFILE" in fields["to_raise"]


def test_refusals_are_told_once_a_minute() -> None:
    sharing = Sharing(64)
    for _ in range(100):
        sharing.descriptors.enter()
    assert sharing.told[1:] == ["connections are refused: no file descriptors are left for them"]
    sharing.time += TELL_SECONDS_MIN
    sharing.descriptors.enter()
    assert len(sharing.told) == 3


def test_files_that_cannot_be_opened_are_told() -> None:
    sharing = Sharing(LIMIT)
    sharing.files.when_short()
    sharing.files.when_short()
    assert sharing.told[1:] == ["no file descriptor is left; idle files are closed"]
