"""Runs a scenario of node/*.js by a `node` of its own, which prints what it saw."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.clients.conftest import WAIT_SECONDS_MAX
from tests.support.process import Address

SCRIPTS = Path(__file__).parent / "node"

Scenario: TypeAlias = Callable[[str, str], Any]
"""Its file and its name; what it saw."""


def scenarios(broker: Address, name: str) -> Scenario:
    """Those that use this name on this broker."""

    def run(file: str, scenario: str) -> Any:
        command = ["node", str(SCRIPTS / "run.js"), broker.url(), name, file, scenario]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
