"""The file that the definitions are kept in: appended to, and from time to time written anew."""

from __future__ import annotations

import os
from pathlib import Path

from warren.broker.commands import Command
from warren.storage.definitions import Definitions
from warren.storage.definitions_recovery import DefinitionProblem, RecoveredDefinitions, recover_definitions
from warren.storage.disk import RENAME, SYNC, SYNC_DIRECTORY, WRITE, Operation
from warren.storage.files import FILE_MODE, OpenFiles, write_file


class DefinitionsFile:
    """Says to the group commit what to write, and hears from it when that is safe."""

    def __init__(self, path: Path, files: OpenFiles, *, sync: bool) -> None:
        self.path = path
        self.files = files
        self.made = path.with_suffix(".new")  # where the file is written anew
        self.sync = sync
        self.definitions = Definitions()
        self.deleted: frozenset[int] = frozenset()  # queues of the time before, by their numbers
        self.read: dict[bytes, Command] = {}  # by the line that says it; until all are taken
        self.is_damaged = False  # whether lines are lost that were once safe
        self.size = 0  # how much of the file is safe
        self.writing = 0  # how many bytes the round in flight adds
        self.named = False  # whether the file's name is known to be on disk
        self.file = -1  # the open file
        self.next_file = -1  # the one that takes its place with the round in flight
        self.directory = -1  # the open data directory

    def load(self) -> list[DefinitionProblem]:
        """Read the file, and keep a copy of lines that could not be read."""
        self.directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        data = self.path.read_bytes()
        recovered = recover_definitions(data)
        self.definitions = recovered.definitions
        self.deleted = recovered.deleted
        self.read = recovered.commands
        self.size = recovered.intact_bytes
        self.is_damaged = any(not problem.torn_tail for problem in recovered.problems)
        try:
            self._keep(data, recovered)
        except OSError as error:  # a full disk, which is also what may have torn the file
            recovered.problems.append(
                DefinitionProblem(0, self.size, f"cannot keep a copy of it: {error}", b"", True)
            )
        return recovered.problems

    def _keep(self, data: bytes, recovered: RecoveredDefinitions) -> None:
        if self.is_damaged:
            write_file(str(self.path.with_suffix(".damaged")), data)
        elif recovered.problems:
            write_file(str(self.path.with_suffix(".torn")), data[recovered.intact_bytes :], append=True)

    def save(self) -> None:
        """At start: write the whole file again, with the queues that were found by their directories. Some
        lines may be readable only because a sync that failed has left them in memory. A torn tail is cut off
        last: it may be all that tells that there are queues to be found.
        """
        path = str(self.path)
        data = self.path.read_bytes()[: self.size] + b"".join(self.definitions.pending)
        try:
            self.files.write(path, data, 0)
            if self.sync:
                self.files.sync(path)
        finally:
            self.files.close(path)
        os.ftruncate(self.file, len(data))
        self.size += len(self.definitions.take_pending())

    def take_commands(self) -> list[Command]:
        """The commands that make the definitions again."""
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
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self.next_file = self.files.try_twice(lambda: os.open(self.made, flags, FILE_MODE))
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
