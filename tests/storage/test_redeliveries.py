"""Messages that are returned and delivered again without end take a bounded room on disk and in memory.

All but the client is real: the log, its commit, the threads behind it, and the files. With
REDELIVERIES=50000000 it is the full number; `-s` shows what it took.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.storage.home import bytes_below
from tests.support.fakes import FakeWorld
from tests.support.log_machine import QUEUE, message, read_on
from tests.support.machine import Notes
from tests.support.waiting import until_readable
from warren.broker.commands import AddVhost, DeclareQueue
from warren.storage.disk import Disk
from warren.storage.queue_log import QueueLog
from warren.storage.store import DiskStore, StorageSettings

REDELIVERIES = int(os.environ.get("REDELIVERIES", "1000000"))
POSITIONS = range(1, 9, 2)  # not side by side, so that each delivery is a mark of its own
ROUNDS_A_TURN = 8  # so many times each of them comes back in a turn
TURNS_A_LOOK = 1_000
DISK_BYTES_MAX = 10_000_000
MEMORY_BYTES_MAX = 50_000_000


def memory_bytes() -> int:
    """What of this process is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Life:
    """A store over real files, from its start to the end of its process."""

    def __init__(self, path: Path) -> None:
        self.world = FakeWorld()
        self.disk = Disk()
        self.disk.start()
        self.store = DiskStore(
            StorageSettings(path=path),
            self.world,
            self.disk,
            Notes(),
            on_trouble=lambda: None,
            on_round=lambda: None,
            on_error=self.world.report,
        )
        self.store.recover()

    def open(self) -> QueueLog:
        opened = self.store.open_log("/", QUEUE)
        assert opened is not None
        assert isinstance(opened[0], QueueLog)
        return opened[0]

    def save(self) -> None:
        """All that has gathered is written and synced."""
        self.world.run()
        while not self.store.commit.is_idle:
            until_readable(self.disk.done)
            self.store.commit.completed()
            self.world.run()

    def wait_for_background(self) -> None:
        """On a busy machine its thread may get no turn for long, and no client is as fast as we are here."""
        self.store.housekeeping.thread.submit(lambda: None).result()

    def end(self, *, killed: bool) -> None:
        """`killed`: nothing is written or tidied up any more."""
        self.disk.stop()
        if not killed:
            self.store.close()
        else:
            self.store.commit.rewritings.stop()
            self.store.housekeeping.stop()
            self.store.files.close_all()
            self.store.file.close()
            os.close(self.store.directory.lock)


def redeliver(life: Life, log: QueueLog, path: Path) -> tuple[int, int]:
    """How many bytes on disk and in memory it took at most."""
    disk, memory, before = 0, 0, memory_bytes()
    rounds = REDELIVERIES // len(POSITIONS)
    step = ROUNDS_A_TURN * TURNS_A_LOOK
    for look in range(0, rounds, step):
        for turn in range(look, min(look + step, rounds), ROUNDS_A_TURN):
            for count in range(turn + 1, turn + 1 + ROUNDS_A_TURN):
                for position in POSITIONS:
                    log.delivered(position, count)
            life.store.write_marks()
        life.wait_for_background()
        disk = max(disk, bytes_below(path))
        memory = max(memory, memory_bytes() - before)
    return disk, memory


def test_room_for_messages_that_come_back_without_end_is_bounded(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.store.record(AddVhost(name="/"))
    life.store.record(DeclareQueue(vhost="/", name=QUEUE, durable=True))
    log = life.open()
    for position in range(1, POSITIONS.stop):
        log.append(message(b"%d" % position), position, True)
    life.save()
    for position in set(range(1, POSITIONS.stop)) - set(POSITIONS):
        log.acked(position)
    disk, memory = redeliver(life, log, tmp_path)
    life.end(killed=True)
    start, before = time.monotonic(), memory_bytes()
    life = Life(tmp_path)
    log = life.open()
    print(  # noqa: T201 - what it took is asked for by hand
        f"{REDELIVERIES:,} redeliveries: {disk:,} bytes on disk and {memory:,} in memory at most; "
        f"read back in {time.monotonic() - start:.3f} s"
    )
    assert disk < DISK_BYTES_MAX
    assert max(memory, memory_bytes() - before) < MEMORY_BYTES_MAX
    rounds = -(-REDELIVERIES // len(POSITIONS) // ROUNDS_A_TURN) * ROUNDS_A_TURN
    found = [(position, log.deliveries_of(position)) for position, _ in read_on(log)]
    assert found == [(position, rounds) for position in POSITIONS]
    life.end(killed=False)
