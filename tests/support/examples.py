"""The programs in `examples/`, run as a user runs them: in processes of their own, with a real broker."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import until_readable

EXAMPLES = Path(__file__).parents[2] / "examples"
END_SECONDS_MAX = 30
"""Spark's Java ends by itself, but a moment after the program."""


def run_example(*arguments: str, home: Path, **environment: str) -> list[str]:
    """The lines that `python ARGUMENTS` prints. It must exit with 0, and leave no process and no file."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=home,
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            printed, errors = process.communicate()
        except BaseException:  # such as the test's timeout
            os.killpg(process.pid, signal.SIGKILL)
            raise
    left = [pid for pid in processes_of(process.pid) if not ends(pid)]
    assert process.returncode == 0, printed + errors
    assert not left, "the program has left processes"
    assert list(home.iterdir()) == [], "the program has left files"
    return printed.splitlines()


def processes_of(session: int) -> list[int]:
    """The processes of a session that are still there, but for its leader."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            _, _, fields = (directory / "stat").read_text().rpartition(") ")
            state, _parent, _group, its_session, *_ = fields.split()
            if int(its_session) == session and int(directory.name) != session and state != "Z":
                found.append(int(directory.name))
    return found


def ends(pid: int) -> bool:
    """Whether the process ends by itself; one that does not is killed."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        gone = until_readable(handle, END_SECONDS_MAX)
        if not gone:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return gone
    finally:
        os.close(handle)


def path_of(example: str) -> str:
    return str(EXAMPLES / f"{example}.py")


def told(example: str) -> list[str]:
    """The output that the program's docstring promises: its last indented block."""
    docstring = ast.get_docstring(ast.parse(Path(path_of(example)).read_text())) or ""
    *_, block = docstring.split("\n\n")
    assert block.startswith("    "), f"the docstring of {example} does not end with what it prints"
    return [line.strip() for line in block.splitlines()]
