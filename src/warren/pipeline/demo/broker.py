"""The demo's own broker: a process of `warren serve`, on ports that the kernel chooses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from warren.client.uri import Uri, parse_uri
from warren.pipeline.errors import PipelineError

STOP_SECONDS_MAX = 20


class DemoBroker:
    """A context manager that runs the broker. Its data and its log are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.uri: Uri
        self.url: str

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "warren", "serve", "--port", "0", "--http-port", "0"]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
        with self._log_path.open("w") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--data-dir", str(self._directory / "data")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=settings,
                start_new_session=True,  # so that Ctrl-C reaches only us, and we stop the broker
            )
        try:
            self._read_addresses()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _read_addresses(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if not line.startswith("ready") or "http" not in words:
            raise PipelineError(f"the demo's broker did not start; its log is {self._log_path}")
        self.uri = parse_uri(f"amqp://guest:guest@{words['amqp']}/")
        self.url = f"http://{words['http']}"

    @property
    def _log_path(self) -> Path:
        return self._directory / "broker.log"

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
