"""The logs of one durable queue on a disk that loses and fails, without a broker.

Nothing happens by itself: `finish_round` lets the disk go on, `run` until nothing is left to do.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.support.fakes import FakeWorld
from tests.support.faulty_disk import Faults, FaultyDisk, FaultyFiles, PatientHousekeeping, Platter
from tests.support.machine import Notes
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.commands import AddVhost, DeclareQueue, DeleteQueue
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.message import Message
from warren.broker.store import NOTHING_TO_READ
from warren.storage.queue_log import QueueLog
from warren.storage.store import DiskStore, StorageSettings
from warren.storage.stream_log import SegmentedStream

STREAM: Table = {"x-queue-type": "stream"}
QUEUE = "orders"
TIME_MS = 1_700_000_000_000
READ_BYTES_MAX = 4 * 1024 * 1024


def message(
    body: bytes, *, expiration: str | None = None, time_ms: int = TIME_MS, scheduled: bool = False
) -> Message:
    properties = BasicProperties(delivery_mode=2, expiration=expiration).encode()
    return Message(encode_name(""), encode_name(QUEUE), properties, body, True, time_ms, False, scheduled)


class LogMachine:
    """The data directory is `data` in the given directory, which outlives the machine."""

    def __init__(
        self,
        path: Path,
        *,
        segment_bytes: int = 500,
        open_files_max: int = 8,
        journal_file_bytes: int = 2_000,
        arguments: Table | None = None,
    ) -> None:
        self.data = path / "data"
        self.data.mkdir(exist_ok=True)
        self.boot_id = path / "boot_id"
        self.boot_id.write_text("boot 1\n")
        self.settings = StorageSettings(
            path=self.data,
            segment_bytes=segment_bytes,
            stream_segment_bytes=segment_bytes,
            journal_file_bytes=journal_file_bytes,
            open_files_max=open_files_max,
            boot_id=self.boot_id,
        )
        self.faults = Faults()
        self.platter = Platter(self.data)
        self.start()
        self.store.record(AddVhost(name="/"))
        declare = DeclareQueue(vhost="/", name=QUEUE, durable=True, arguments=arguments or {})
        self.store.record(declare)
        self.run()

    def start(self) -> None:
        self.world = FakeWorld()
        self.notes = Notes()
        self.disk = FaultyDisk(self.platter, self.faults)
        self.files = FaultyFiles(self.settings.open_files_max, self.platter, self.faults)
        self.housekeeping = PatientHousekeeping(self.notes.warning, self.world.report, self.faults)
        self.store = DiskStore(
            self.settings,
            self.world,
            self.disk,
            self.notes,
            on_trouble=lambda: None,
            on_round=lambda: None,
            on_error=self.world.report,
            files=self.files,
            housekeeping=self.housekeeping,
        )
        self.store.recover()

    @property
    def told(self) -> list[str]:
        return [event for event, _ in self.notes.lines]

    @property
    def directory(self) -> Path:
        number = self.store.file.definitions.queue_number("/", QUEUE)
        return self.data / "queues" / str(number)

    def open(self, part: str = "") -> QueueLog:
        opened = self.store.open_log("/", QUEUE, part)
        assert opened is not None
        assert isinstance(opened[0], QueueLog)
        return opened[0]

    def open_stream(self) -> tuple[SegmentedStream, int]:
        log, position = self.store.open_stream("/", QUEUE)
        assert isinstance(log, SegmentedStream)
        return log, position

    def open_overflow(self) -> QueueLog:
        log = self.store.open_overflow()
        assert isinstance(log, QueueLog)
        return log

    def delete_queue(self) -> None:
        self.store.record(DeleteQueue(vhost="/", name=QUEUE))

    # --- going on ---

    def finish_round(self) -> bool:
        """Let the disk carry out all that was submitted. Returns whether there was anything."""
        self.world.run()
        if not self.disk.is_busy:
            return False
        self.disk.work()
        self.store.commit.completed()
        self.world.run()
        return True

    def run(self) -> None:
        """Go on until neither the disk nor housekeeping has anything left to do."""
        while self.finish_round():
            pass
        self.store.write_marks()
        self.housekeeping.run()

    # --- the end ---

    def stop(self) -> None:
        """Write everything, and close the store."""
        self.run()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self, rng: Random) -> None:
        """End the process. The round in flight is only partly written."""
        self.world.run()
        self.disk.work(rng.randint(0, len(self.disk.pending)))
        self.disk.write_part(rng)
        self.housekeeping.run(rng.randint(0, len(self.housekeeping.waiting)))
        self._close_files()

    def cut_power(self, rng: Random) -> None:
        """The same, and a random part of what was not synced is lost."""
        self.kill(rng)
        self.platter.replace(self.platter.crashed(rng))
        self.boot_id.write_text(f"boot {rng.random()}\n")

    def lose_all_unsynced(self) -> None:
        """Cut the power: everything that was not synced is lost."""
        least = self.platter.least()
        self._close_files()
        self.platter.replace(least)
        self.boot_id.write_text("another boot\n")

    def close(self) -> None:
        self._close_files()
        self.platter.close()

    def _close_files(self) -> None:
        ours = {synced.handle for synced in self.platter.known.values()}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - one of them is gone when it is looked at
            try:
                target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            except FileNotFoundError:
                continue
            if target.startswith(str(self.data)) and int(name) not in ours:
                os.close(int(name))


def entry_of(
    message: Message, position: int, location: int, deliveries: int = 0, returned: bool = False
) -> Entry:
    """The entry of a message that was read or appended, as a queue has it."""
    entries = EntryList()
    entries.append_new(message, None, position, location, deliveries)
    entry = entries.pop_head()
    entry.returned = returned
    return entry


def read_on(log: QueueLog, most: int = 1_000, before: int = NOTHING_TO_READ) -> list[tuple[int, Message]]:
    """Read on in the log: messages, with their positions."""
    ready = EntryList()
    log.read_on(None, ready, most, READ_BYTES_MAX, before)
    found = []
    while ready.count:
        entry = ready.pop_head()
        found.append((entry.position, entry.message))
    return found


def browse(log: QueueLog) -> list[tuple[int, Message]]:
    """All unread records, by a browser, which takes none of them."""
    browser, position, found = log.browse(), 0, []
    while (position := browser.next_position(position)) != NOTHING_TO_READ:
        found.append((position, browser.read()))
    return found
