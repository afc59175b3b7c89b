"""One archive at a time in a directory, by a lock that ends with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.jobs.lock import only_one

pytestmark = pytest.mark.slow

HOLDS = """
import sys
from warren.pipeline.jobs.lock import only_one
with only_one(sys.argv[1], elsewhere=False):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_on_one_directory_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    to = str(tmp_path / "new" / "archive")
    with only_one(to, elsewhere=False) as told:
        assert told == ""
        told_process = rf"another archive \(process {os.getpid()} on "
        with pytest.raises(PipelineError, match=told_process), only_one(f"file://{to}", elsewhere=False):
            pass
    with only_one(to, elsewhere=False) as told:
        assert told == ""


def test_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused = f"process {holder.pid} on "
        with pytest.raises(PipelineError, match=refused), only_one(str(tmp_path), elsewhere=False):
            pass
        holder.send_signal(signal.SIGKILL)
    with only_one(str(tmp_path), elsewhere=False) as told:
        assert told == ""


@pytest.mark.parametrize(("to", "elsewhere"), [("hdfs://host/archive", False), ("not-here", True)])
def test_what_is_not_on_this_machine_is_told_not_to_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, *, elsewhere: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with only_one(to, elsewhere=elsewhere) as told:
        assert (
            told == f"--to {to} is not on this machine, and is not locked: let no other archive write there"
        )
    assert list(tmp_path.iterdir()) == []
