"""What a store must not forget of the shards that it keeps copies of: lines of the file `shards.log`.

    5d1f0a77 {"store": "f3b1…", "synced": true}      the random id of this store, first
    a3c1f0b2 {"shard": 12, "epoch": 8}               the highest epoch that is known of a shard
    90ab12cd {"cut": "shards/12/129/00000000000000000001@7", "length": 5120}

A store that knows an epoch takes nothing from the leader of a lower one, also after a restart. An epoch is
synced with the round of the group commit in which it is noted, so before anything of that epoch is acked.

A cut says that bytes of a segment behind `length` were taken away on purpose. The journal may still have
them, and must not write them again. A start writes what the journal has, and then cuts are forgotten.

`store` changes if the store may have lost what it has acked: the machine went down while the broker did not
sync (`synced` is false), or a line in the middle of this file is damaged, so that an epoch may be forgotten.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from warren.storage.checked_lines import checked_line, line_content, scan_lines
from warren.storage.files import OpenFiles
from warren.storage.lines_file import LinesFile
from warren.storage.problems import Logger

SHARDS_FILE = "shards.log"
STORE_ID_BYTES = 16
DEAD_LINES_MIN = 1_000  # the file has more of them before it is written anew


class ShardNotes:
    """What the file says."""

    def __init__(self) -> None:
        self.store_id = ""
        self.synced = True  # whether the run that wrote the file synced what it wrote
        self.epochs: dict[int, int] = {}  # the highest known epoch, by shard
        self.broken: set[int] = set()  # shards of which something is damaged, or was and is not there again
        self.cuts: dict[str, int] = {}  # where a segment ends now, by its path and epoch
        self.pending: list[bytes] = []  # lines that are to be written
        self.written = 0  # how many lines the file has, with those that are pending
        self.is_damaged = False  # a line that was once safe cannot be read

    def read(self, data: bytes) -> None:
        """Take over what the lines say. What is not intact at the end was never safe."""
        bad = False
        for line in scan_lines(data):
            if not line.intact:
                bad = True
                continue
            self.is_damaged = self.is_damaged or bad
            content = line_content(line.raw)
            store, shard, cut = content.get("store"), content.get("shard"), content.get("cut")
            epoch, length, whole = content.get("epoch"), content.get("length"), content.get("whole")
            if isinstance(store, str):
                self.store_id, self.synced = store, content.get("synced") is True
            elif isinstance(shard, int) and isinstance(epoch, int):
                self.epochs[shard] = max(epoch, self.epochs.get(shard, 0))
            elif isinstance(shard, int) and isinstance(whole, bool):
                (self.broken.discard if whole else self.broken.add)(shard)
            elif isinstance(cut, str) and isinstance(length, int):
                self.cuts[cut] = min(length, self.cuts.get(cut, length))

    def note_epoch(self, shard: int, epoch: int) -> None:
        if epoch > self.epochs.get(shard, 0):
            self.epochs[shard] = epoch
            self._add({"shard": shard, "epoch": epoch})

    def note_whole(self, shard: int, *, is_whole: bool) -> None:
        if is_whole == (shard in self.broken):
            (self.broken.discard if is_whole else self.broken.add)(shard)
            self._add({"shard": shard, "whole": is_whole})

    def note_cut(self, name: str, length: int) -> None:
        self.cuts[name] = min(length, self.cuts.get(name, length))
        self._add({"cut": name, "length": length})

    def _add(self, content: dict[str, str | int | bool]) -> None:
        self.pending.append(checked_line(content))
        self.written += 1

    # --- what its file asks ---

    @property
    def wants_compaction(self) -> bool:
        live = 1 + len(self.epochs) + len(self.broken) + len(self.cuts)
        return self.written - live > max(DEAD_LINES_MIN, live)

    def take_pending(self) -> bytes:
        taken = b"".join(self.pending)
        self.pending.clear()
        return taken

    def compacted(self) -> bytes:
        self.pending.clear()
        lines = [checked_line({"store": self.store_id, "synced": self.synced})]
        lines += [checked_line({"shard": shard, "epoch": epoch}) for shard, epoch in self.epochs.items()]
        lines += [checked_line({"shard": shard, "whole": False}) for shard in sorted(self.broken)]
        lines += [checked_line({"cut": name, "length": length}) for name, length in self.cuts.items()]
        self.written = len(lines)
        return b"".join(lines)


def read_shard_notes(directory: Path) -> ShardNotes:
    """Those of a data directory; without a store id if it has none."""
    notes = ShardNotes()
    path = directory / SHARDS_FILE
    if path.exists():
        notes.read(path.read_bytes())
    return notes


def open_shards_file(
    directory: Path, files: OpenFiles, log: Logger, *, sync: bool, machine_went_down: bool
) -> LinesFile:
    """The file of a data directory, made if it is not there, and with a new store id if the old one does not
    stand for what is there any more. It is called after the journal was recovered: cuts are forgotten.
    """
    notes = read_shard_notes(directory)
    lost = machine_went_down and not notes.synced
    if notes.is_damaged or (lost and notes.store_id):
        reason = "shards.log is damaged" if notes.is_damaged else "what it had acked may not have been synced"
        log.warning("the store gets a new id: it is no member of any shard now", reason=reason)
        notes.store_id = ""
        notes.epochs.clear()
        notes.broken.clear()
    notes.store_id = notes.store_id or secrets.token_hex(STORE_ID_BYTES)
    notes.synced = sync
    notes.cuts.clear()
    path = directory / SHARDS_FILE
    data = notes.compacted()
    files.replace(str(path), data, sync=True)
    file = LinesFile(path, files, notes, sync=sync)
    file.open()
    file.size, file.named = len(data), True
    return file
