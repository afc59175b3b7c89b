"""How connections and files share the descriptors that the system lets the process have.

    | own | connections, as many as there are | as much again for new ones | files of queues |
    0                                                                                     limit

A file can be closed and opened again, a connection cannot: files get half of what connections leave, up to
`open_files_max`, and idle ones are closed as connections come. When next to nothing is left, new connections
are refused with 530, and beyond those that hear so, at once.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

from warren.storage.files import OpenFiles
from warren.storage.problems import Logger

# For listeners (`ACCEPTED_A_TURN`), as many clients that are let in and sent away, threads, the definitions,
# and files that are opened for a moment.
OWN_MAX = 128
FILES_MIN = 16
REFUSED_MAX = 16  # connections that are told why they are refused, at a time
TELL_SECONDS_MIN = 60.0
WHAT_TO_RAISE = "the limit of open files: ulimit -n, or LimitNOFILE= of a systemd unit"


def descriptors_max() -> int:
    """What this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**31


class Descriptors:
    """`others` says how many are taken by what is neither an AMQP connection nor a file of a queue."""

    def __init__(self, limit: int, files_max: int, log: Logger, now: Callable[[], float]) -> None:
        self.limit = limit
        self.files_max = files_max
        self.log = log
        self.now = now
        self.room = limit - min(OWN_MAX, limit // 4)
        self.connections_max = max(1, self.room - FILES_MIN - REFUSED_MAX)
        self.connections = 0
        self.others: Callable[[], int] = lambda: 0
        self.files: OpenFiles | None = None
        self.told = -TELL_SECONDS_MIN

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
        """A connection has come; whether there is room to tell it anything."""
        if self.connections + self.others() >= self.connections_max:
            self._tell("connections are refused: no file descriptors are left for them")
        if self.connections + self.others() >= self.connections_max + REFUSED_MAX:
            return False
        self.connections += 1
        self._share()
        return True

    def leave(self) -> None:
        self.connections -= 1
        self._share()

    def _share(self) -> None:
        if self.files is not None:
            left = self.room - self.connections - self.others()
            self.files.keep_to(min(self.files_max, max(FILES_MIN, left // 2)))

    def _tell_short(self) -> None:
        self._tell("no file descriptor is left; idle files are closed")

    def _tell(self, event: str) -> None:
        """Not each time: there may be thousands."""
        if self.now() - self.told >= TELL_SECONDS_MIN:
            self.told = self.now()
            self.log.error(event, limit=self.limit, connections=self.connections, to_raise=WHAT_TO_RAISE)
