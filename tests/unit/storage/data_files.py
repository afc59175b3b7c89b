"""A data directory made by hand, for tests."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.storage.log_files import LogDirectory, acks, chunks, done, index, segment
from warren.amqp.table import Table
from warren.broker.commands import DeclareQueue
from warren.broker.parameters import Json
from warren.storage.checked_lines import checked_line
from warren.storage.command_text import command_to_json
from warren.storage.definitions import Definitions


class HandMade:
    """Queues are numbered from 1 on as they are declared."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.definitions = Definitions()
        (path / "queues").mkdir(parents=True)
        (path / "VERSION").write_text("1\n")
        self.write_definitions()

    def write_definitions(self) -> None:
        with (self.path / "definitions.log").open("ab") as file:
            file.write(self.definitions.take_pending())

    def declare(self, queue: str, vhost: str = "/", arguments: Table | None = None) -> LogDirectory:
        """A queue that has a directory."""
        command = DeclareQueue(vhost=vhost, name=queue, durable=True, arguments=arguments or {})
        self.definitions.record(command)
        self.write_definitions()
        return self.directory(self.definitions.queue_number(vhost, queue), command)

    def directory(self, number: int, command: DeclareQueue) -> LogDirectory:
        log = LogDirectory(self.path / "queues" / str(number))
        (log.path / "queue.json").write_text(json.dumps(command_to_json(command)))
        return log

    def state(self) -> dict[Path, tuple[int, bytes]]:
        """All that would show that something was written."""
        return {
            path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in self.path.rglob("*")
        }


FIRST = segment(1, [b"one", b"two", b"three"])
SECOND = segment(4, [b"four", b"five", b"six"])


def with_queue(path: Path) -> tuple[HandMade, LogDirectory]:
    """A queue with the messages 1 to 6 in two segments. 2 and 4 are done with, and 3 was delivered twice."""
    data = HandMade(path)
    log = data.declare("q")
    log.put(1, "seg", FIRST)
    log.put(1, "idx", index(1, FIRST))
    log.put(1, "acks", acks(1, done(2), (3, 1, 2)))
    log.put(4, "seg", SECOND)
    log.put(4, "acks", acks(4, done(4)))
    return data, log


def with_stream(path: Path) -> tuple[HandMade, LogDirectory]:
    """A stream with the same messages; `reader` is done with the second, and `gone` with nothing any more."""
    data = HandMade(path)
    log = data.declare("s", arguments={"x-queue-type": "stream"})
    log.put(1, "seg", FIRST)
    log.put(1, "chunks", chunks(1, FIRST))
    log.put(4, "seg", SECOND)
    lines: list[dict[str, Json]] = [
        {"name": "reader", "offset": 0},
        {"name": "gone", "offset": 5},
        {"name": "reader", "offset": 1},
        {"name": "gone", "offset": None},
    ]
    (log.path / "offsets").write_bytes(b"".join(map(checked_line, lines)))
    return data, log
