"""What was set aside because the leader of a shard does not have it: records that were never confirmed.

    diverged/12/129/00000000000000000001@7-5120.seg   of shard 12 and queue 129: records from an offset on
    diverged/12/129/seen/…                            the same, of a part of the queue

Each file is a segment by itself: it begins with the header of the one that it was cut from. The operator may
look into them, and delete them. All of them together have at most `KEPT_BYTES_MAX`: the oldest go first.
"""

from __future__ import annotations

import os
from itertools import chain, count
from pathlib import Path

from warren.storage.files import OpenFiles
from warren.storage.format import encode_segment_header, segment_name
from warren.storage.problems import Logger
from warren.storage.replication import LogId

DIVERGED = "diverged"
KEPT_BYTES_MAX = 1024 * 1024 * 1024


def _free_name(directory: Path, name: str, content: bytes) -> Path:
    """A path where nothing is, or the same content."""
    paths = (directory / f"{name}{more}.seg" for more in chain([""], (f".{number}" for number in count(2))))
    return next(path for path in paths if not path.exists() or path.read_bytes() == content)


class Diverged:
    """The directory of all that is set aside. It is used by one thread at a time."""

    def __init__(self, root: Path, files: OpenFiles, log: Logger, *, sync: bool) -> None:
        self.path = root / DIVERGED
        self.files = files
        self.log = log
        self.sync = sync

    def keep(self, shard: int, log: LogId, base: int, epoch: int, offset: int, data: bytes) -> None:
        """Keep bytes of a segment from an offset on, which is where a record begins. It is safe when this
        returns.
        """
        if not data:
            return
        directory = self.path / str(shard) / str(log.queue) / log.part
        content = encode_segment_header(base, epoch) + data
        path = _free_name(directory, f"{segment_name(base)}@{epoch}-{offset}", content)
        if path.exists():
            return  # kept before, by an attempt that did not come to its end
        told = {"shard": shard, "queue": log.queue, "bytes": len(data), "position": base}
        if not self._make_room(len(content)):
            self.log.warning("records that the leader does not have are too large to be kept", **told)
            return
        self.files.make_directory(str(directory))
        self.files.replace(str(path), content, sync=self.sync)
        if self.sync:
            for parent in list(path.parents)[1:]:
                self.files.sync(str(parent))
                if parent == self.path.parent:
                    break
        self.log.warning("records that the leader does not have are set aside", kept_in=str(path), **told)

    def _make_room(self, size: int) -> bool:
        """Delete the oldest files until there is room for so many bytes more. Whether there is."""
        kept = sorted(
            (status.st_mtime_ns, str(path), status.st_size)
            for path, status in ((path, path.stat()) for path in self.path.rglob("*.seg"))
        )
        total = sum(of_one for _, _, of_one in kept)
        for _, path, of_one in kept:
            if total + size <= KEPT_BYTES_MAX:
                break
            self.log.warning("what was set aside before is deleted: there is too much of it", file=path)
            os.unlink(path)  # noqa: PTH108 - paths are text here
            total -= of_one
        return total + size <= KEPT_BYTES_MAX
