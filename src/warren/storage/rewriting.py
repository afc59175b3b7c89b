"""Ack files that are written anew, because most of their marks have been overtaken by later ones.

    housekeeping    .acks.new  = as few marks as say what .acks has said up to here, synced
    the event loop  .acks.new += the marks that have been added to .acks since; renamed to .acks
    housekeeping    the directory is synced, and the old file is let go of

So `.acks` has all marks that were ever written, at every moment; after a power cut it has those that were
synced. A message that is returned and delivered again for days makes a file of a megabyte, and not of
gigabytes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from warren.storage.ack_file import pieces
from warren.storage.fates import Fates
from warren.storage.files import OpenFiles
from warren.storage.format import ACKS_MAGIC, HEADER_BYTES, encode_header
from warren.storage.segment import Segment

ACKS_BYTES_MIN = 1024 * 1024  # a file that is no larger stays as it is
TIMES_LARGER = 4  # than what says the same, a file has to be
ADDED_BYTES_MAX = 512 * 1024  # that the event loop copies at once
SWITCHED_A_TURN_MAX = 4


class Background(Protocol):
    """Where the work is done, one after the other."""

    def rewrite(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None: ...
    def let_go(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None: ...


class Rewriting:
    """One ack file."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.old_path = segment.path + ".acks"
        self.new_path = segment.path + ".acks.new"
        self.fates = Fates(segment.base)  # what the marks come to that were read from the old file
        self.upto = HEADER_BYTES  # how many bytes of the old file are in the new one
        self.size = 0  # the size of the new file
        self.old_file = -1  # the old file, while it is open

    @property
    def is_pointless(self) -> bool:
        return self.segment.is_dropped()

    def write(self, files: OpenFiles, end: int, *, sync: bool) -> None:
        """Write the new file from the old one, as far as `end`. The old file stays open: when the rename
        takes its name away, the thread that closes it waits for the deletion, and not the event loop.
        """
        if self.old_file < 0:
            self.old_file = os.open(self.old_path, os.O_RDONLY | os.O_CLOEXEC)
        for piece in pieces(self.old_file, self.upto, end):
            self.fates.add(piece)
        self.upto = end
        data = encode_header(ACKS_MAGIC, self.segment.base) + self.fates.encode()
        files.write_anew(self.new_path, data)
        if sync:
            files.sync(self.new_path)
        self.size = len(data)

    def switch(self, files: OpenFiles) -> None:
        """Add the marks that have come since, and rename the new file to the old one."""
        added = files.read(self.old_path, self.segment.marks_written - self.upto, self.upto)
        files.write(self.new_path, added, self.size)
        files.rename(self.new_path, self.old_path)
        self.segment.marks_written = self.size + len(added)

    def close(self) -> None:
        if self.old_file >= 0:
            os.close(self.old_file)
            self.old_file = -1

    def give_up(self) -> None:
        """The old file stays."""
        self.close()
        Path(self.new_path).unlink(missing_ok=True)


class Rewritings:
    """All ack files that are being written anew."""

    def __init__(self, files: OpenFiles, background: Background, *, sync: bool) -> None:
        self.files = files
        self.background = background
        self.sync = sync
        self.bytes_min = ACKS_BYTES_MIN  # a file that is no larger stays as it is
        self.stopped = False
        self.written: deque[Rewriting] = deque()  # done in the background: the event loop goes on with them
        self.failed: deque[Rewriting] = deque()  # the same, of those that could not be written

    def consider(self, segment: Segment) -> None:
        """An ack file is larger than `acks_bytes_max`: if it really is large, begin to write it anew."""
        segment.acks_bytes_max = max(segment.acks_bytes_max, self.bytes_min)
        if segment.marks_written > segment.acks_bytes_max and not segment.rewriting:
            segment.rewriting = True
            self._write(Rewriting(segment))

    def _write(self, rewriting: Rewriting) -> None:
        end = rewriting.segment.marks_written

        def write() -> None:
            if rewriting.is_pointless or self.stopped:
                rewriting.give_up()
                return
            rewriting.write(self.files, end, sync=self.sync)
            if rewriting.is_pointless:  # its files may have been deleted meanwhile
                rewriting.give_up()
            else:
                self.written.append(rewriting)

        def fail() -> None:
            rewriting.give_up()
            self.failed.append(rewriting)

        self.background.rewrite(rewriting.old_path, write, fail)

    def go_on(self) -> None:
        """At the end of a turn: take over what the background has done."""
        while self.failed:
            self._try_later(self.failed.popleft().segment)
        for _ in range(min(len(self.written), SWITCHED_A_TURN_MAX)):
            self._go_on_with(self.written.popleft())

    def _go_on_with(self, rewriting: Rewriting) -> None:
        segment = rewriting.segment
        if rewriting.is_pointless:
            self.background.let_go(rewriting.new_path, rewriting.give_up, rewriting.close)
        elif segment.marks_written - rewriting.upto > ADDED_BYTES_MAX:
            self._write(rewriting)
        else:
            self._switch(rewriting)

    def _switch(self, rewriting: Rewriting) -> None:
        segment = rewriting.segment
        try:
            rewriting.switch(self.files)
        except OSError:  # the old file is as it was; whatever is wrong with the disk, the next mark tells
            self.files.close(rewriting.new_path)
            self.background.let_go(rewriting.new_path, rewriting.give_up, rewriting.close)
            self._try_later(segment)
            return
        segment.rewriting = False
        segment.acks_bytes_max = max(self.bytes_min, TIMES_LARGER * rewriting.size)
        self.background.let_go(rewriting.old_path, lambda: self._let_go(rewriting), rewriting.close)

    def _let_go(self, rewriting: Rewriting) -> None:
        rewriting.close()
        if self.sync and not rewriting.is_pointless:
            self.files.sync(os.path.dirname(rewriting.old_path))  # noqa: PTH120 - paths are text here

    def _try_later(self, segment: Segment) -> None:
        """Try again when the file is twice as large as now."""
        segment.rewriting = False
        segment.acks_bytes_max = 2 * segment.marks_written

    def stop(self) -> None:
        """Begin no more."""
        self.stopped = True

    def close(self) -> None:
        """When the background has come to its end."""
        while self.written:
            self.written.popleft().give_up()
