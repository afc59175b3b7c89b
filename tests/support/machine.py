"""A broker on a disk that loses and fails: it can be stopped, be killed, and have its power cut.

Nothing happens by itself: `turn` lets the event loop go on, `finish_round` the disk, `run` both until nothing
is left to do. Limits are so small that all of the storage is used by a handful of messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from tests.support.fake_client import FakeClient
from tests.support.fakes import EXCHANGE_TYPES, FakeWorld, add_user
from tests.support.faulty_disk import Faults, FaultyDisk, FaultyFiles, PatientHousekeeping, Platter, Tree
from tests.support.privacy import open_to_others
from warren.amqp import methods as m
from warren.amqp.reader import ReadBuffer
from warren.broker import commands, lane
from warren.broker.classic_queue import ClassicQueue
from warren.broker.events import Failure
from warren.broker.message import Message
from warren.broker.node import Limits, Node
from warren.broker.queue import Queue
from warren.broker.view import QueueView
from warren.session.connection import connections_of
from warren.storage import definitions, queue_log, rewriting
from warren.storage.format import records
from warren.storage.journal import records_in
from warren.storage.store import DiskStore, StorageSettings

RETRY_SECONDS = 0.6  # a little more than the storage waits
ROUNDS_MAX = 1_000
JOURNAL_FILE_BYTES = 1_000  # full after some rounds
MANY = 1_000

SMALL_LIMITS = (
    patch.object(lane, "READY_MAX", 3),
    patch.object(lane, "READ_MAX", 3),
    patch.object(lane, "READY_FREE_MAX", 1),
    patch.object(lane, "READY_SLACK", 0),
    patch.object(lane, "READ_FEW", 2),
    patch.object(queue_log, "DEAD_TAIL_BYTES_MIN", 1_000),
    patch.object(definitions, "DEAD_LINES_MIN", 10),
    patch.object(rewriting, "ACKS_BYTES_MIN", 100),
    patch.object(rewriting, "TIMES_LARGER", 2),
    patch.object(rewriting, "ADDED_BYTES_MAX", 32),
)


@contextmanager
def small_limits() -> Iterator[None]:
    """Few messages are held in memory, small tails are given back, and ack files are often written anew."""
    for limit in SMALL_LIMITS:
        limit.start()
    try:
        yield
    finally:
        for limit in SMALL_LIMITS:
            limit.stop()


def give_up_ready(queues: Iterable[Queue]) -> int:
    """As when memory is short: drop ready entries that are on disk as well. Returns how many were dropped."""
    given = 0
    for queue in queues:
        for each in queue.lanes if isinstance(queue, ClassicQueue) else ():
            each.return_loan()
            given += each.give_up(MANY)
    return given


class Notes:
    """A logger that keeps its lines for the test."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def _note(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    info = warning = error = _note


def subtree(tree: Tree, name: str) -> Tree:
    """A directory in a tree; empty if there is none of that name."""
    found = tree.get(name, {})
    assert isinstance(found, dict)
    return found


class Machine:
    """The data directory is `data` in the given directory, which outlives the machine."""

    def __init__(
        self,
        path: Path,
        *,
        segment_bytes: int = 2_000,
        open_files_max: int = 8,
        memory_bytes: int = 1,
        sync: bool = True,
        boot_id: Path | None = None,
    ) -> None:
        self.data = path / "data"
        self.data.mkdir(exist_ok=True)
        self.boot_id = boot_id or path / "boot_id"
        self.boots = 0
        self.settings = StorageSettings(
            path=self.data,
            sync=sync,
            segment_bytes=segment_bytes,
            journal_file_bytes=JOURNAL_FILE_BYTES,
            open_files_max=open_files_max,
            boot_id=self.boot_id,
        )
        self.limits = Limits(memory_budget_bytes=memory_bytes)
        self.faults = Faults()
        self.platter = Platter(self.data)
        if boot_id is None:
            self.boot()
        self.start()

    def boot(self) -> None:
        self.boots += 1
        self.boot_id.write_text(f"boot {self.boots}\n")

    def start(self) -> None:
        """Start as the server does. The clock goes on from where it was before a restart."""
        previous = getattr(self, "world", None)
        self.world = FakeWorld()
        if previous is not None:
            self.world.time = previous.time
        self.notes = Notes()
        self.buffer = ReadBuffer()
        self.disk = FaultyDisk(self.platter, self.faults)
        self.files = FaultyFiles(self.settings.open_files_max, self.platter, self.faults)
        self.housekeeping = PatientHousekeeping(self.notes.warning, self.world.report, self.faults)
        self.store = DiskStore(
            self.settings,
            self.world,
            self.disk,
            self.notes,
            on_trouble=lambda: self.node.raise_alarm("disk"),
            on_round=lambda: self.node.end_turn(),  # noqa: PLW0108 - there is no node yet
            on_error=self.world.report,
            files=self.files,
            housekeeping=self.housekeeping,
        )
        self.node = Node(self.world, self.limits, EXCHANGE_TYPES, "test", self.store)
        self.node.events.subscribe(Failure, lambda failure: self.world.report(failure.error))
        open_before = open_to_others(self.data)
        self.node.restore(self.store.recover())
        assert open_to_others(self.data) <= open_before - {str(self.data)}
        if not self.node.users:
            self.node.execute(commands.AddVhost(name="/"))
            add_user(self.node, "guest")

    @property
    def queues(self) -> dict[str, Queue]:
        vhost = self.node.vhosts.get("/")
        return {} if vhost is None else {queue.name: queue for queue in vhost.all_queues()}

    def connect(self, *, confirming: bool = False) -> FakeClient:
        client = FakeClient(self.node, buffer=self.buffer).open()
        if confirming:
            client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        return client

    def safe_messages(self, name: str) -> list[Message]:
        """What a power cut leaves of a durable queue, if everything is lost that was not synced."""
        number = self.store.file.definitions.queue_number("/", name)
        left = self.platter.least()
        directory = subtree(subtree(left, "queues"), str(number))
        segments = {
            f"queues/{number}/{path.removesuffix('.seg')}": bytearray(data)
            for path, data in sorted(directory.items())
            if path.endswith(".seg") and isinstance(data, bytes)
        }
        for journal in subtree(left, "journal").values():
            assert isinstance(journal, bytes)
            for path, offset, data in chain.from_iterable(parts or () for _, parts in records_in(journal)):
                if path in segments:
                    segments[path][offset : offset + len(data)] = data
        return [record.message for data in segments.values() if data for record in records(bytes(data))]

    # --- going on ---

    def turn(self) -> None:
        self.world.run()

    def finish_round(self) -> bool:
        """Let the disk carry out all that was submitted. Returns whether there was anything."""
        self.turn()
        if not self.disk.is_busy:
            return False
        self.disk.work()
        self.store.commit.completed()
        self.turn()
        return True

    def run(self) -> None:
        """Go on until the disk has nothing left to do, or fails."""
        rounds = 0
        while self.finish_round():
            rounds += 1
            assert rounds < ROUNDS_MAX, "the disk is never done"

    def pass_time(self, seconds: float = RETRY_SECONDS) -> None:
        """Let time pass, so that failed rounds are tried again, and check the alarm as the server does."""
        self.world.advance(seconds)
        self.turn()
        (self.node.raise_alarm if self.store.is_failing else self.node.clear_alarm)("disk")
        self.turn()

    def recover_from_faults(self) -> None:
        """Let the disk work again; the broker must go on by itself."""
        self.faults.plan = None
        self.run()
        self.pass_time()
        self.run()
        self.pass_time()

    # --- the end ---

    def stop(self) -> None:
        """Stop as the server does: end all connections, then write everything."""
        for connection in connections_of(self.node):
            connection.lost()
        self.recover_from_faults()
        self.run()  # what became due meanwhile
        assert self.store.commit.is_idle
        self.store.close()
        assert not open_to_others(self.data)
        self._forget()

    def kill(self, rng: Random) -> None:
        """End the process, maybe in the middle of a write: the round in flight is only partly written."""
        self.turn()
        self.disk.work(rng.randint(0, len(self.disk.pending)))
        self.disk.write_part(rng)
        self.housekeeping.run(rng.randint(0, len(self.housekeeping.waiting)))
        for file in self.open_files():
            os.close(file)
        self.faults.plan = None
        self._forget()

    def cut_power(self, rng: Random) -> None:
        """The same, and a random part of what was not synced is lost."""
        self.kill(rng)
        self.platter.replace(self.platter.crashed(rng))
        self.boot()

    def _forget(self) -> None:
        """Let go of all entries. The garbage collector does not track them: cycles with them would stay."""
        for connection in connections_of(self.node):
            for channel in connection.open_channels():
                channel.deliveries.take_up_to(channel.deliveries.delivery_tag)
                for consumer in channel.consumers.values():
                    if isinstance(consumer.view, QueueView):
                        consumer.view.end()
        self.node.handover.gathered.clear()
        for each in self.queues.values():
            each.release_memory()
        self.world.soon.clear()
        self.world.later.clear()

    def open_files(self) -> list[int]:
        """The descriptors that this process has open in the data directory, except the platter's."""
        ours = {synced.handle for synced in self.platter.known.values()}
        found = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - one of them is gone when it is looked at
            try:
                target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            except FileNotFoundError:
                continue
            if target.startswith(str(self.data)) and int(name) not in ours:
                found.append(int(name))
        return found

    def close(self) -> None:
        for file in self.open_files():
            os.close(file)
        self._forget()
        self.platter.close()
