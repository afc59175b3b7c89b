"""A data directory that outlives its brokers, and what can be seen of it from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.privacy import open_to_others
from tests.support.process import BrokerProcess

WAIT_SECONDS_MAX = 30.0
SEGMENT_SUFFIXES = (".seg", ".acks", ".idx", ".torn")
END_SIGNALS = (signal.SIGTERM, signal.SIGKILL)


class Home:
    """`settings` are those of `warren.toml`, `arguments` those of the command, of brokers from then on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data_dir = path / "data"
        self.settings: dict[str, object] = {}
        self.arguments: tuple[str, ...] = ()

    def process(self) -> BrokerProcess:
        """A broker that is yet to be started."""
        if not self.settings:
            return BrokerProcess(self.data_dir, *self.arguments)
        config = self.path / "warren.toml"
        config.write_text("".join(f"{name} = {value!r}\n" for name, value in self.settings.items()))
        return BrokerProcess(self.data_dir, "--config", str(config), *self.arguments)

    @contextmanager
    def broker(self, *, ends_by: signal.Signals = signal.SIGTERM) -> Iterator[BrokerProcess]:
        """A broker that ends with the block, one way or the other, and has not failed. It leaves no file that
        others can read.
        """
        open_before = open_to_others(self.data_dir)
        with self.process() as process:
            yield process
            if ends_by is signal.SIGKILL:
                process.kill()
        process.check_log()
        assert open_to_others(self.data_dir) <= open_before - {str(self.data_dir)}

    @contextmanager
    def life(self, *, ends_by: signal.Signals = signal.SIGTERM) -> Iterator[AmqpChannel]:
        """A channel to such a broker; what is unacked at the end of the block is so when the broker ends."""
        with self.broker(ends_by=ends_by) as process:
            with connected(process) as channel:
                yield channel
                process.process.send_signal(ends_by)
            process.process.wait(WAIT_SECONDS_MAX)

    def log(self) -> str:
        """Of the last broker."""
        return self.data_dir.with_suffix(".log").read_text()

    # --- what is on disk ---

    def queue_directory(self) -> Path:
        """Of the only durable queue that has one."""
        (directory,) = (self.data_dir / "queues").iterdir()
        return directory

    def segments(self) -> list[Path]:
        """Of the only durable queue, in order."""
        return sorted(self.queue_directory().glob("*.seg"))

    def transient_bytes(self) -> int:
        return bytes_below(self.data_dir / "transient")


@contextmanager
def connected(process: BrokerProcess) -> Iterator[AmqpChannel]:
    """A channel on a connection of its own, which is dropped without a word."""
    client = AmqpClient.connect(process.address)
    client.wait_seconds_max = WAIT_SECONDS_MAX
    try:
        yield client.channel()
    finally:
        client.abort()


def bytes_below(directory: Path) -> int:
    """How much all files take that are there; files may go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(folder, name).stat().st_size
    return total


def open_files_below(process: BrokerProcess, directory: Path) -> int:
    """How many files and directories the process has open there."""
    found = 0
    for link in Path(f"/proc/{process.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += str(link.readlink()).startswith(str(directory))
    return found


def eventually(condition: Callable[[], bool], channel: AmqpChannel, what: str) -> None:
    """Waits for what nobody tells of, by asking the broker something that takes it a moment."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: still not so after {WAIT_SECONDS_MAX} s"
        channel.declare("tick")


def message_count(channel: AmqpChannel, queue: str) -> int:
    return channel.declare(queue, exclusive=False, passive=True).message_count
