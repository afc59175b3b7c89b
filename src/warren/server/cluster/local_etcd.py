"""`--etcd local`: Debian's `etcd` as a child of the broker, with its data in the broker's directory.

One member, so it is for one machine: demos and tests. It ends with the broker, even if that is killed; if it
dies by itself it is started again, on the same ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import shutil
import signal
import socket
from pathlib import Path

from structlog.stdlib import BoundLogger

from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import EtcdError
from warren.server.config_error import ConfigError

PROGRAM = "etcd"
QUOTA_BYTES = 8 * 1024**3
COMPACTED_AFTER = "1h"  # what watches may be behind
START_SECONDS_MAX = 60.0
ASK_SECONDS = 0.05  # between questions whether it has started
RESTART_SECONDS = 0.5
STOP_SECONDS_MAX = 10.0
LINE_BYTES_MAX = 1_000  # of its log, as ours tells it
LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1


class LocalEtcd:
    def __init__(
        self, directory: Path, log: BoundLogger, *, client_port: int = 0, peer_port: int = 0
    ) -> None:
        self.directory = directory  # for etcd's data
        self.log = log
        self.client_port = client_port or free_port()
        self.peer_port = peer_port or free_port()
        self.process: asyncio.subprocess.Process | None = None
        self.keeper: asyncio.Task[None] | None = None  # starts it again, if it dies
        self.restarts = 0  # how often that was

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.client_port}"

    async def start(self, etcd: Etcd) -> None:
        """Start it, and wait until it answers. `etcd` is a client of its endpoint."""
        program = shutil.which(PROGRAM)
        if program is None:
            raise ConfigError("etcd = 'local' needs etcd, which is not installed: apt install etcd-server")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.keeper = asyncio.create_task(self._keep(program))
        try:
            await asyncio.wait_for(self._until_it_answers(etcd), START_SECONDS_MAX)
        except TimeoutError:
            await self.stop()
            raise ConfigError(f"etcd does not start in {self.directory}: its own log says why") from None

    async def _until_it_answers(self, etcd: Etcd) -> None:
        while True:
            with contextlib.suppress(EtcdError):  # it has not got that far
                if (await etcd.status()).has_leader:
                    return
            await asyncio.sleep(ASK_SECONDS)

    async def _keep(self, program: str) -> None:
        while True:
            self.process = await asyncio.create_subprocess_exec(
                program,
                *self._arguments(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the broker, which needs etcd until its end
                preexec_fn=end_with_parent,
            )
            await self._pass_on_log(self.process)
            code = await self.process.wait()
            self.restarts += 1
            self.log.warning("etcd has ended, and is started again", code=code)
            await asyncio.sleep(RESTART_SECONDS)

    def _arguments(self) -> list[str]:
        peers = f"http://{LOOPBACK}:{self.peer_port}"
        settings = {
            "name": "local",
            "data-dir": str(self.directory),
            "listen-client-urls": self.endpoint,
            "advertise-client-urls": self.endpoint,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"local={peers}",
            "quota-backend-bytes": str(QUOTA_BYTES),
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": COMPACTED_AFTER,
            "logger": "zap",
            "log-level": "error",
        }
        return [f"--{name}={value}" for name, value in settings.items()]

    async def _pass_on_log(self, process: asyncio.subprocess.Process) -> None:
        """Its errors become lines of our log, until it ends."""
        assert process.stderr is not None, "it was started with a pipe"
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # a line longer than the pipe's buffer; the rest of it is the next one
                continue
            if not line:
                return
            self.log.warning("etcd", says=line[:LINE_BYTES_MAX].decode(errors="replace").strip())

    async def stop(self) -> None:
        if self.keeper is not None:
            self.keeper.cancel()
            await asyncio.gather(self.keeper, return_exceptions=True)
        process = self.process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()


_prctl = ctypes.CDLL(None).prctl


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """In the child: have the kernel end it when its parent is gone, however that ended."""
    _prctl(PR_SET_PDEATHSIG, int(number))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
