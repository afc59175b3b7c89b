"""The file that the definitions are kept in: appended to, and from time to time written anew."""

from __future__ import annotations

import os
from pathlib import Path

from warren.broker.commands import Command
from warren.storage.definitions import Definitions
from warren.storage.definitions_recovery import Problem, Recovered, recover_definitions
from warren.storage.disk import RENAME, SYNC, SYNC_DIRECTORY, WRITE, Operation
from warren.storage.files import FILE_MODE, OpenFiles


class DefinitionsFile:
    """Says to the group commit what to write, and hears from it when that is safe."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self.made = path.with_suffix(".new")
        self.sync = sync
        self.definitions = Definitions()
        self.deleted: frozenset[int] = frozenset()  # queues of the time before, by their numbers
        self.read: dict[bytes, Command] = {}  # by the line that says it; until all are taken
        self.size = 0
        self.writing = 0
        self.named = False  # whether the file's name is known to be on disk
        self.file = -1
        self.next_file = -1
        self.directory = -1

    def load(self) -> list[Problem]:
        """Read it, and keep beside what could not be read."""
        self.directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        data = self.path.read_bytes()
        recovered = recover_definitions(data)
        self.definitions = recovered.definitions
        self.deleted = recovered.deleted
        self.read = recovered.commands
        self.size = recovered.intact_bytes
        try:
            self._keep(data, recovered)
        except OSError as error:  # a full disk, which is also what may have torn the file
            recovered.problems.append(Problem(0, self.size, f"cannot keep a copy of it: {error}", b"", True))
        return recovered.problems

    def _keep(self, data: bytes, recovered: Recovered) -> None:
        if any(not problem.torn_tail for problem in recovered.problems):
            self.path.with_suffix(".damaged").write_bytes(data)
        elif recovered.problems:
            with self.path.with_suffix(".torn").open("ab") as torn:
                torn.write(data[recovered.intact_bytes :])

    def save(self, files: OpenFiles) -> None:
        """At start: write all of it again, since some of it may be readable only because a failed sync has
        left it in memory, and what was found elsewhere; and only then cut a torn tail off, which may be all
        that tells that there is something to be found.
        """
        path = str(self.path)
        data = self.path.read_bytes()[: self.size] + b"".join(self.definitions.pending)
        try:
            files.write(path, data, 0)
            if self.sync:
                files.sync(path)
        finally:
            files.close(path)
        os.ftruncate(self.file, len(data))
        self.size += len(self.definitions.take_pending())

    def take_commands(self) -> list[Command]:
        """Those that make the definitions again."""
        commands = self.definitions.commands(self.read)
        self.read = {}
        return commands

    # --- what the group commit asks ---

    def has_news(self) -> bool:
        return bool(self.definitions.pending)

    def operations(self) -> list[Operation]:
        if self.definitions.wants_compaction:
            return self._written_anew()
        data = self.definitions.take_pending()
        self.writing = len(data)
        return self._write(self.file, data, self.size, [] if self.named else self._sync_names())

    def _written_anew(self) -> list[Operation]:
        self.next_file = os.open(self.made, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        data = self.definitions.compacted()  # only now: what is pending must not be lost if that fails
        self.writing = len(data)
        rename = Operation(RENAME, path=os.fsencode(self.made), target=os.fsencode(self.path))
        return self._write(self.next_file, data, 0, [rename, *self._sync_names()])

    def _sync_names(self) -> list[Operation]:
        return [Operation(SYNC_DIRECTORY, file=self.directory)] if self.sync else []

    def _write(self, file: int, data: bytes, offset: int, then: list[Operation]) -> list[Operation]:
        syncs = [Operation(SYNC, file=file)] if self.sync else []
        return [Operation(WRITE, file=file, data=data, offset=offset), *syncs, *then]

    def are_safe(self) -> None:
        if self.next_file >= 0:
            os.close(self.file)
            self.file, self.next_file = self.next_file, -1
            self.size = 0
        self.size += self.writing
        self.writing = 0
        self.named = True

    def close(self) -> None:
        for file in (self.file, self.next_file, self.directory):
            if file >= 0:
                os.close(file)
