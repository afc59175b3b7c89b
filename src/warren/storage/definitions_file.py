"""The file that the definitions are kept in: appended to, and from time to time written anew."""

from __future__ import annotations

import os
from pathlib import Path

from warren.broker.commands import Command
from warren.storage.definitions import Definitions
from warren.storage.definitions_recovery import DefinitionProblem, RecoveredDefinitions, recover_definitions
from warren.storage.files import OpenFiles, write_file
from warren.storage.lines_file import LinesFile


class DefinitionsFile(LinesFile):
    """Says to the group commit what to write, and hears from it when that is safe."""

    def __init__(self, path: Path, files: OpenFiles, *, sync: bool) -> None:
        self.definitions = Definitions()
        super().__init__(path, files, self.definitions, sync=sync)
        self.deleted: frozenset[int] = frozenset()  # queues of the time before, by their numbers
        self.read: dict[bytes, Command] = {}  # by the line that says it; until all are taken
        self.is_damaged = False  # whether lines are lost that were once safe

    def load(self) -> list[DefinitionProblem]:
        """Read the file, and keep a copy of lines that could not be read."""
        self.open()
        data = self.path.read_bytes()
        recovered = recover_definitions(data)
        self.definitions = self.lines = recovered.definitions
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
