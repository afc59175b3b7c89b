"""How connections and files share the file descriptors that the system lets the process have.

    | our own | connections that are open | half of the rest: new connections | the other half: files |
    0                                                                                             limit

A file can be closed and opened again, a connection cannot. So files of queues get half of what the open
connections leave, up to `open_files_max`, and idle files are closed as connections come. Beyond
`connections_max` a new connection is refused with 530, and told why; `REFUSED_MAX` of these can be open at a
time, and further ones are closed at once.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from warren.server.metrics import Metric, Metrics, Number
from warren.storage.files import OpenFiles
from warren.storage.problems import Logger

# Our own descriptors: for listeners, clients that were accepted in this turn (`ACCEPTED_A_TURN`), threads,
# the definitions, and files that are open for a moment.
OWN_MAX = 128
OPEN_DESCRIPTORS = Path("/proc/self/fd")
FILES_MIN = 16
REFUSED_MAX = 16  # connections that are being told why they are refused, at a time
TELL_SECONDS_MIN = 60.0  # between two log lines
WHAT_TO_RAISE = "the limit of open files: ulimit -n, or LimitNOFILE= of a systemd unit"


def descriptors_max() -> int:
    """How many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**31


def open_descriptors() -> int:
    """How many are open. Linux before 6.2 tells no size of this directory: then the names are counted."""
    return OPEN_DESCRIPTORS.stat().st_size or sum(1 for _ in OPEN_DESCRIPTORS.iterdir())


class Descriptors:
    """Counts descriptors, and sets how many files the store may keep open."""

    def __init__(self, limit: int, files_max: int, log: Logger, now: Callable[[], float]) -> None:
        self.limit = limit  # of the process
        self.files_max = files_max  # the setting `open_files_max`
        self.log = log
        self.now = now
        self.room = limit - min(OWN_MAX, limit // 4)  # for connections and files of queues
        self.connections_max = max(1, self.room - FILES_MIN - REFUSED_MAX)
        self.connections = 0  # AMQP connections that are open
        self.counters: list[
            Callable[[], int]
        ] = []  # count what else is open, such as connections of the HTTP API
        self.files: OpenFiles | None = None  # the store's files
        self.told = -TELL_SECONDS_MIN  # when the last log line was written

    def share_with(self, files: OpenFiles) -> None:
        self.files = files
        files.when_short = self._tell_short
        self._share()
        if files.limit < self.files_max:
            self.log.warning(
                "few file descriptors",
                limit=self.limit,
                files=files.limit,
                connections_max=self.connections_max,
                to_raise=WHAT_TO_RAISE,
            )

    def enter(self) -> bool:
        """A connection was accepted. False if there is not even room to tell it that it is refused."""
        if not self.has_room():
            return False
        self.connections += 1
        self._share()
        return True

    def has_room(self) -> bool:
        """Whether one more connection can be open, if only to be told that it is refused."""
        if self.is_used_up:
            self._tell("connections are refused: no file descriptors are left for them")
        return self.connections + self.others() < self.connections_max + REFUSED_MAX

    def others(self) -> int:
        return sum(count() for count in self.counters)

    def leave(self) -> None:
        self.connections -= 1
        self._share()

    @property
    def is_used_up(self) -> bool:
        """Whether new connections are refused."""
        return self.connections + self.others() >= self.connections_max

    def add_metrics(self, metrics: Metrics) -> None:
        figures: dict[str, tuple[str, Callable[[], Number]]] = {
            "process_open_fds": ("Open file descriptors", open_descriptors),
            "process_max_fds": ("Open file descriptors limit", lambda: self.limit),
            "process_open_tcp_sockets": ("Open TCP sockets", lambda: self.connections + self.others()),
            "process_max_tcp_sockets": ("Open TCP sockets limit", lambda: self.connections_max),
            "alarms_file_descriptor_limit": (
                "1: no descriptors are left for connections",
                lambda: int(self.is_used_up),
            ),
        }
        for name, (text, read) in figures.items():
            metrics.add(Metric(name=f"rabbitmq_{name}", text=text, read=read))

    def _share(self) -> None:
        if self.files is not None:
            left = self.room - self.connections - self.others()
            self.files.keep_to(min(self.files_max, max(FILES_MIN, left // 2)))

    def _tell_short(self) -> None:
        self._tell("no file descriptor is left; idle files are closed")

    def _tell(self, event: str) -> None:
        """Log this once in `TELL_SECONDS_MIN`: it may happen thousands of times a second."""
        if self.now() - self.told >= TELL_SECONDS_MIN:
            self.told = self.now()
            self.log.error(event, limit=self.limit, connections=self.connections, to_raise=WHAT_TO_RAISE)
