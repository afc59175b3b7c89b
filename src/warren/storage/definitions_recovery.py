"""Reading the definitions back from their file. Nothing in it can make this fail.

A line that is damaged, or says what is not known here, is reported and left out; what hangs on something
that was lost that way is, too. What follows is read all the same.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from warren.broker.commands import Command
from warren.broker.parameters import Json
from warren.storage.checked_lines import Line, line_content, scan_lines
from warren.storage.definition_keys import REMOVING, key_of
from warren.storage.definitions import FORMAT, NEXT_QUEUE_NUMBER, Definitions, parse_definition

UNREADABLE = (ValueError, ArithmeticError, RecursionError, struct.error)


@dataclass(frozen=True)
class DefinitionProblem:
    """`text` is for whoever repairs the file; it may hold password hashes, and is not for the log."""

    line: int
    offset: int
    reason: str
    text: bytes
    torn_tail: bool = False


@dataclass(frozen=True)
class RecoveredDefinitions:
    """What follows `intact_bytes` is the torn tail: it has to be cut off before anything is appended.
    `deleted` are the numbers of queues that were declared and are not there any more; `commands` are those
    that lines make something with.

    Lines that were left out are still in the file until it is compacted, so a copy should be kept then.
    """

    definitions: Definitions
    problems: list[DefinitionProblem]
    intact_bytes: int
    deleted: frozenset[int]
    commands: dict[bytes, Command]


def recover_definitions(data: bytes) -> RecoveredDefinitions:
    return _Recovery().run(data)


class _Recovery:
    """One reading back."""

    def __init__(self) -> None:
        self.definitions = Definitions()
        self.definitions.lines = 0
        self.problems: list[DefinitionProblem] = []  # what was found
        self.declared: set[int] = set()  # the numbers of all queues that were ever declared
        self.damaged: list[Line] = []  # since the last intact line: if none follows, they are the torn tail
        self.commands: dict[bytes, Command] = {}  # by the line that says it

    def run(self, data: bytes) -> RecoveredDefinitions:
        for line in scan_lines(data):
            if line.intact:
                if self.damaged:
                    self._report_damaged()
                self._read(line)
            else:
                self.damaged.append(line)
        intact_bytes = self._report_torn_tail(data)
        self._expect_header_to_be_written(first=intact_bytes == 0)
        deleted = self.declared.difference(self.definitions.numbers.values())
        return RecoveredDefinitions(
            self.definitions, self.problems, intact_bytes, frozenset(deleted), self.commands
        )

    def _report_damaged(self) -> None:
        for line in self.damaged:
            self.definitions.lines += 1
            self._report(line, "damaged: its checksum is wrong")
        self.damaged.clear()

    def _report_torn_tail(self, data: bytes) -> int:
        """Where it begins."""
        if not self.damaged:
            return len(data)
        first = self.damaged[0]
        reason = "torn tail: the last write did not finish"
        self.problems.append(
            DefinitionProblem(first.number, first.offset, reason, data[first.offset :], torn_tail=True)
        )
        return first.offset

    def _expect_header_to_be_written(self, *, first: bool) -> None:
        if first:
            self.definitions.lines = 1
        else:
            self.definitions.pending.clear()

    def _read(self, line: Line) -> None:
        self.definitions.lines += 1
        try:
            content = line_content(line.raw)
            if "format" in content:
                self._read_header(content)
            else:
                self._fold(line, content)
        except UNREADABLE as error:
            self._report(line, f"not understood: {error}")

    def _read_header(self, content: dict[str, Json]) -> None:
        number = content.get(NEXT_QUEUE_NUMBER, 1)
        if type(number) is int:
            self.definitions.reserve_queue_numbers(number - 1)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}, where only {FORMAT} is known")

    def _fold(self, line: Line, content: dict[str, Json]) -> None:
        command, number = parse_definition(content)
        key = key_of(command)
        needs = key.needs
        lacking = None if type(command) in REMOVING else self.definitions.lacks(needs)
        if lacking is None:
            raw = line.raw + b"\n"
            self.definitions.fold(command, key, needs, raw, number)
            self.declared.add(number)
            self.commands[raw] = command
        else:
            self._report(line, f"left out: there is no {lacking}")

    def _report(self, line: Line, reason: str) -> None:
        self.problems.append(DefinitionProblem(line.number, line.offset, reason, line.raw))
