"""Directories of queues that the definitions do not name.

Either such a queue was deleted, and the broker ended before its directory was gone; or its definition is
lost, as when an older `definitions.log` was put in place of the last one. Numbers of queues count up and are
never used again, so the log itself tells which: a number that it has issued is that of a queue which has
ended since, and one that it has not issued is none of its own. Only the former are ever deleted. Of the
others the directory says what the queue was, and it is declared again. Where it does not, or there is another
queue with that name, the directory is set aside under a name that nobody uses, and every start tells of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import TypeAlias

from warren.broker.commands import DeclareQueue
from warren.broker.internal_queue import exchange_of
from warren.storage.command_text import command_from_json
from warren.storage.definition_keys import ExchangeKey
from warren.storage.definitions_file import DefinitionsFile
from warren.storage.log_directory import DELETED, MANIFEST, UNKNOWN
from warren.storage.problems import Logger

Names: TypeAlias = dict[int, tuple[str, str]]
"""The vhost and name of queues, by their numbers."""


class UnknownQueues:
    """Goes through the directories of all queues, and deals with those that the definitions do not name."""

    def __init__(
        self,
        directory: Path,
        file: DefinitionsFile,
        log: Logger,
        *,
        remove: Callable[[str], None],
        sync: Callable[[str], None],
    ) -> None:
        self.directory = directory  # that of all queues
        self.file = file
        self.definitions = file.definitions
        self.log = log
        self.remove = remove  # deletes a directory
        self.sync = sync  # makes the names in a directory safe

    def settle(self, known: Names) -> Names:
        """Delete, declare again or set aside each directory that is not known. Returns the queues declared
        again.
        """
        issued = self.definitions.next_queue_number
        numbers = sorted(self._numbers())
        self.definitions.reserve_queue_numbers(max(numbers, default=0))
        adopted: Names = {}
        for number in numbers:
            if number in known:
                continue
            path = self.directory / str(number)
            if number < issued and self._has_ended(number):
                self.log.info("removing what a deleted queue left", directory=str(path))
                self.remove(str(path))
                continue
            try:
                adopted[number] = self._adopt(path)
            except (ValueError, OSError) as error:
                self._set_aside(path, error)
        return adopted

    def _numbers(self) -> Iterator[int]:
        for name in os.listdir(self.directory):  # noqa: PTH208 - names are all that is needed
            path, number = f"{self.directory}/{name}", name.partition(".")[0]
            if name.isdecimal():
                yield int(name)
            elif number.isdecimal() and name == number + DELETED:
                self.remove(path)
            elif number.isdecimal() and name.startswith(number + UNKNOWN):
                self.log.warning("directory of an unknown queue is set aside", directory=path)
            else:
                self.log.warning("foreign file", file=path)

    def _has_ended(self, number: int) -> bool:
        """Whether the queue with this number, which was issued by the definitions, was deleted. If one of
        their lines is damaged, that may be the one which declared the queue.
        """
        return not self.file.is_damaged or number in self.file.deleted

    def _adopt(self, path: Path) -> tuple[str, str]:
        """Declare the queue again that the directory names. ValueError with a reason, or OSError, if that is
        not possible.
        """
        command = command_from_json(json.loads((path / MANIFEST).read_text()))
        if not isinstance(command, DeclareQueue):
            raise ValueError("it does not say which queue it is of")  # noqa: TRY004 - the file's content is bad
        exchange = exchange_of(command.name)
        if exchange is not None and ExchangeKey(command.vhost, exchange) not in self.definitions.live:
            raise ValueError(f"there is no exchange '{exchange}' that it would belong to")
        if not self.definitions.record(command, int(path.name)):
            raise ValueError(f"there is another queue '{command.name}' in vhost '{command.vhost}'")
        self.log.warning(
            "queue declared again: the definitions do not have it",
            vhost=command.vhost,
            queue=command.name,
            directory=str(path),
        )
        return command.vhost, command.name

    def _set_aside(self, path: Path, reason: Exception) -> None:
        names = (f"{path.name}{UNKNOWN}{more}" for more in chain([""], map(str, count(2))))
        aside = next(path.with_name(name) for name in names if not path.with_name(name).exists())
        try:
            path.rename(aside)
            self.sync(str(self.directory))  # before a log is written that seems to have issued its number
        except OSError as error:
            self.log.warning("cannot set aside", directory=str(path), error=str(error))
        self.log.warning("directory of an unknown queue", directory=str(aside), reason=str(reason))
