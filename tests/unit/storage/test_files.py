"""Files are opened when needed, and no more than may be."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.storage.files import OpenFiles


@pytest.fixture
def files() -> Iterator[OpenFiles]:
    files = OpenFiles(4)
    yield files
    files.close_all()


def test_no_more_are_open_than_the_limit(files: OpenFiles, tmp_path: Path) -> None:
    for number in range(20):
        files.create(str(tmp_path / str(number)))
        assert len(files.files) <= 4


def test_what_is_pinned_stays_open(files: OpenFiles, tmp_path: Path) -> None:
    first = str(tmp_path / "first")
    file = files.create(first)
    files.pinned.add(first)
    for number in range(20):
        files.create(str(tmp_path / str(number)))
    files.close(first)
    assert files.open(first) == file
    os.fstat(file)


@pytest.fixture
def no_more_files() -> Iterator[list[int]]:
    """All that the process may open is open already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in taken:
            os.close(file)


def take_all(taken: list[int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))


def test_when_others_have_taken_all_files_one_of_ours_is_closed(
    files: OpenFiles, tmp_path: Path, no_more_files: list[int]
) -> None:
    files.create(str(tmp_path / "first"))
    take_all(no_more_files)
    files.create(str(tmp_path / "second"))
    assert list(files.files) == [str(tmp_path / "second")]


def test_when_there_is_none_to_close_it_fails(
    files: OpenFiles, tmp_path: Path, no_more_files: list[int]
) -> None:
    take_all(no_more_files)
    with pytest.raises(OSError, match="Too many open files"):
        files.create(str(tmp_path / "first"))
