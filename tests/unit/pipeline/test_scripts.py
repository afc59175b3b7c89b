"""Where the wrapper scripts for Spark are kept, for users with a home and without."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.scripts import script

TEXT = "#!/bin/sh\necho here\n"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of temporary files."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def homeless(tmp_path: Path) -> dict[str, str]:
    """An environment whose HOME cannot be created, not even by root."""
    (tmp_path / "file").write_text("")
    return {"HOME": str(tmp_path / "file" / "home")}


def said(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_program_is_in_the_cache_of_the_users_home(tmp_path: Path) -> None:
    made = script("kind", "name", TEXT, {"HOME": str(tmp_path)})
    assert made.is_relative_to(tmp_path / ".cache" / "warren" / "kind")
    assert said(made) == "here\n"


def test_program_of_a_user_whose_home_cannot_be_written_is_with_the_temporary_files(
    homeless: dict[str, str], temporary: Path
) -> None:
    made = script("kind", "name", TEXT, homeless)
    assert made.is_relative_to(temporary / f"warren-{os.getuid()}")
    assert said(made) == "here\n"
    assert (temporary / f"warren-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_program_of_a_user_whom_the_system_does_not_know_is_with_the_temporary_files(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert script("kind", "name", TEXT, {}).is_relative_to(temporary)


@pytest.mark.parametrize("kind", ["writable by others", "a link"])
def test_directory_that_somebody_else_may_have_made_is_refused(
    homeless: dict[str, str], temporary: Path, kind: str
) -> None:
    """Spark runs the scripts in it, so another user must not be able to write to it."""
    guessed, elsewhere = temporary / f"warren-{os.getuid()}", temporary / "elsewhere"
    elsewhere.mkdir()
    if kind == "a link":
        guessed.symlink_to(elsewhere)
    else:
        guessed.mkdir()
        guessed.chmod(0o777)
    with pytest.raises(PipelineError, match="others can write to it; XDG_CACHE_HOME can name another"):
        script("kind", "name", TEXT, homeless)
    assert not list(elsewhere.iterdir())
