"""Notes of messages that are moved from one queue to another: one file for each move under way.

    moves/3      one checked line (`checked_lines.py`), and spaces up to the length of the longest one so far

    82c1a0d4 {"from": 17, "to": 18, "runs": [["", 1201, "priority-3", 44, 300]]}

`from` and `to` are the numbers of the queues. A run is of messages that lie one behind the other: part and
position of the first in the old log, the same in the new log, and how many they are.

A message that is moved takes these steps. What is there after a crash is in the last column; the end of the
process loses nothing that was handed to the system.

    append to the new log        in memory, until a round of the group commit begins        the old log
    write the note               in the same turn of the event loop, so before that         the old log
    the round                    the message is in both logs                                both: see below
    mark as done in the old log  when the round is over                                     the new log
    deliver from the new queue   only now, so that no consumer acks what may be undone      the new log

A start looks at each note (`move_recovery.py`). A message that has reached the new log is marked as done in
the old one, before the logs are read back. So it is in one of them, whenever the broker was killed. After a
power cut, marks that were not synced may be lost, as those of any ack: then it may be in both, but never in
none.
"""

from __future__ import annotations

from collections.abc import Sequence

from warren.broker.store import MoveNotes, MoveRun
from warren.storage.checked_lines import checked_line
from warren.storage.commit import GroupCommit
from warren.storage.files import OpenFiles


class MoveFile(MoveNotes):
    """The notes of one move."""

    def __init__(self, path: str, files: OpenFiles, commit: GroupCommit, old: int, new: int) -> None:
        self.path = path
        self.files = files
        self.commit = commit  # writes the marks
        self.old = old  # the number of the queue that messages leave
        self.new = new  # the number of the queue that they go to
        self.size = 0  # of the file

    def write(self, runs: Sequence[MoveRun]) -> None:
        line = checked_line({"from": self.old, "to": self.new, "runs": [list(run) for run in runs]})
        self.size = max(self.size, len(line))
        self.files.write(self.path, line.ljust(self.size), 0)

    def are_settled(self) -> bool:
        self.commit.write_marks()
        return not self.commit.marked

    def remove(self) -> None:
        self.files.remove(self.path)
