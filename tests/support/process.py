"""A real `warren serve` process for tests: on a port the kernel chooses, on a directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

STOP_SECONDS_MAX = 20
RUN_WARREN = "import runpy; runpy.run_module('warren', run_name='__main__')"


@dataclass(frozen=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    def url(self, vhost: str = "%2F") -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/{vhost}"


class BrokerProcess:
    """Starts on entering. On leaving it is ended with SIGTERM, and checked to have ended well.

    `limits` replaces limits that are named in the source, so that a test need not wait for them:
    `{"warren.server.farewell.LINGER_SECONDS_MAX": 0.5}`.
    `ulimit` are arguments of the shell's command `ulimit`, for this process.
    `python` runs it: that of another environment, if a test has made one.
    `within` is a command that runs the one which follows it, in another network say.
    """

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        limits: dict[str, float] | None = None,
        ulimit: str = "",
        python: str = sys.executable,
        within: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.log_path = data_dir.with_suffix(".log")
        self.arguments = arguments
        self.limits = limits or {}
        self.ulimit = ulimit
        self.python = python
        self.within = within
        self.address = Address("", 0)
        self.http_url = ""
        self.told: dict[str, str] = {}  # what its ready line tells: addresses by scheme

    def __enter__(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Starts the process, and does not wait until it is ready. The caller has to end it."""
        command = [*self.within, self.python, *self.entry(), "serve", "--port", "0", "--http-port", "0"]
        if self.ulimit:
            command = ["sh", "-c", f'ulimit {self.ulimit}; exec "$0" "$@"', *command]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(self.data_dir), *self.arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={k: v for k, v in os.environ.items() if not k.startswith("WARREN_")},
            )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready amqp="), f"no ready line but {line!r}:\n{self.log()}"
        self.told = told = dict(word.partition("=")[::2] for word in line.split()[1:])
        host, _, port = told["amqp"].rpartition(":")
        self.address = Address(host, int(port))
        self.http_url = f"http://{told['http']}" if "http" in told else ""

    def kill(self) -> None:
        """SIGKILL: the process can do nothing more. Returns when it is gone."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def terminate(self) -> None:
        """SIGTERM: ask the process to end. Leaving waits until it has ended."""
        self.process.terminate()

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        finally:
            self.kill()
        assert self.process.returncode in {0, -signal.SIGKILL}, self.log()

    def entry(self) -> list[str]:
        """Arguments of Python that run the command `warren`, after setting the limits if there are any."""
        if not self.limits:
            return ["-m", "warren"]
        steps = []
        for limit, value in self.limits.items():
            module, _, _ = limit.rpartition(".")
            steps.append(f"import {module}; {limit}; {limit} = {value}")  # fails if there is no such limit
        return ["-c", "\n".join([*steps, RUN_WARREN])]

    def log(self) -> str:
        return self.log_path.read_text()

    def check_log(self) -> None:
        """The broker's log has neither an internal error nor a traceback."""
        assert "internal error" not in self.log()
        assert "Traceback" not in self.log()

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
