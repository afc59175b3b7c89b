"""The definitions: what of the topology survives a restart, and the log that says so.

The file `definitions.log` consists of checked lines (`checked_lines.py`). The first one says what it is; each
of the others is a command (`command_text.py`) that changed something when it was carried out:

    e234bd89 {"format": 1}
    bbb8b0f0 {"add_vhost": {"name": "/"}}
    aa2244d5 {"declare_queue": {"vhost": "/", "name": "orders", "durable": true}, "number": 1}
    fe5c1022 {"bind": {"vhost": "/", "source": "amq.topic", "destination": "orders", "to_queue": true}}
    8288e33a {"delete_queue": {"vhost": "/", "name": "orders"}}

What hangs on something that is removed goes with it and has no line of its own: the bindings of a queue, the
permissions of a user. A vhost that a line names is there, even if its own line was lost.

`number` is the queue's, after which the directory of its messages is named. Numbers count up and are never
used again, so that no queue finds the messages of one before it. When most lines are dead the file is
written anew with the live ones; its first line then says where the numbers go on:

    1ef08886 {"format": 1, "next_queue_number": 2}

Nothing is written here: whoever syncs the log takes the bytes. A definition is kept as the line that makes
it, which is small, is all that a new file needs, and tells exactly whether a command changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from warren.broker.commands import AddVhost, Command, DeclareQueue
from warren.broker.parameters import Json
from warren.storage.checked_lines import checked_line, line_content
from warren.storage.command_text import command_from_json, command_to_json
from warren.storage.definition_keys import (
    REMOVING,
    REPLACING,
    REPLAY_ORDER,
    Key,
    Needs,
    QueueKey,
    VhostKey,
    key_of,
    survives,
)

FORMAT = 1
DEAD_LINES_MIN = 1_000
NUMBER = "number"
NEXT_QUEUE_NUMBER = "next_queue_number"


class Definitions:
    """All durable definitions. A command is recorded once it was carried out."""

    def __init__(self) -> None:
        self.live: dict[Key, bytes] = {}  # the line that made each definition
        self.numbers: dict[QueueKey, int] = {}  # those of queues
        self.hanging: dict[Key, set[Key]] = {}  # of each definition, those that go when it goes
        self.next_queue_number = 1
        self.pending = [header_line()]  # lines that are to be written
        self.lines = 1  # how many lines the file has, once these are written

    # --- changing them ---

    def record(self, command: Command, number: int = 0) -> bool:
        """Whether it changed anything that survives; if so, there is something to be written. A queue that
        does not come with a number gets the next one.
        """
        key = key_of(command)
        needs = key.needs
        if not self._may_change(command, key, needs):
            return False
        if type(command) is DeclareQueue:
            number = number or self.next_queue_number
        line = definition_line(command, number)
        if self.live.get(key) == line:
            return False
        self.fold(command, key, needs, line, number)
        self.pending.append(line)
        self.lines += 1
        return True

    def _may_change(self, command: Command, key: Key, needs: Needs) -> bool:
        if type(command) in REMOVING:
            return key in self.live
        if key in self.live and type(command) not in REPLACING:
            return False
        return survives(command) and self.lacks(needs) is None

    def lacks(self, needs: Needs) -> Key | None:
        """What of these is not there, apart from a vhost, which goes without saying."""
        for need in needs:
            if need not in self.live and type(need) is not VhostKey:
                return need
        return None

    def fold(self, command: Command, key: Key, needs: Needs, line: bytes, number: int) -> None:
        """Take over what this line of the file says; `needs` are those of the key.

        A line that makes what is there already means that the one which removed it was lost, so the
        old one goes first, with all that hung on it.
        """
        if key in self.live and type(command) not in REPLACING:
            self._remove(key)
        if type(command) not in REMOVING:
            self._put(key, needs, line)
        if number and isinstance(key, QueueKey):
            self.numbers[key] = number
            self.reserve_queue_numbers(number)

    def reserve_queue_numbers(self, used_max: int) -> None:
        """Number queues above this from now on, as when there is a directory with it."""
        self.next_queue_number = max(self.next_queue_number, used_max + 1)

    def _put(self, key: Key, needs: Needs, line: bytes) -> None:
        self.live[key] = line
        for need in needs:
            hanging = self.hanging.get(need)
            if hanging is not None:
                hanging.add(key)
                continue
            if type(need) is VhostKey and need not in self.live:
                self._put(need, need.needs, definition_line(AddVhost(name=need.name)))
            self.hanging[need] = {key}

    def _remove(self, key: Key) -> None:
        if self.live.pop(key, None) is None:
            return
        if isinstance(key, QueueKey):
            self.numbers.pop(key, None)
        for need in key.needs:
            self._unhang(key, need)
        for hanging in self.hanging.pop(key, ()):
            self._remove(hanging)

    def _unhang(self, key: Key, need: Key) -> None:
        others = self.hanging.get(need)
        if others is not None:
            others.discard(key)
            if not others:
                del self.hanging[need]

    # --- reading them ---

    def queue_number(self, vhost: str, name: str) -> int:
        """KeyError if it is not a queue that survives."""
        return self.numbers[QueueKey(vhost, name)]

    def queue(self, vhost: str, name: str) -> Command:
        """The command that declared it."""
        return command_in(self.live[QueueKey(vhost, name)])

    def commands(self, known: Mapping[bytes, Command] | None = None) -> list[Command]:
        """What makes a fresh node have all of it, in order. Lines that are `known` are not parsed again."""
        known = known or {}
        return [known.get(line) or command_in(line) for line in self._live_lines()]

    def _live_lines(self) -> list[bytes]:
        """In an order in which everything comes after what it hangs on."""
        by_kind: dict[type, list[bytes]] = {kind: [] for kind in REPLAY_ORDER}
        for key, line in self.live.items():
            by_kind[type(key)].append(line)
        return [line for lines in by_kind.values() for line in lines]

    # --- writing them ---

    def take_pending(self) -> bytes:
        """The lines that were not taken yet, to be appended to the file."""
        taken = b"".join(self.pending)
        self.pending.clear()
        return taken

    @property
    def wants_compaction(self) -> bool:
        dead = self.lines - 1 - len(self.live)
        return dead > max(DEAD_LINES_MIN, len(self.live))

    def compacted(self) -> bytes:
        """The whole file anew, pending lines included."""
        lines = [header_line(self.next_queue_number), *self._live_lines()]
        self.pending.clear()
        self.lines = len(lines)
        return b"".join(lines)


def header_line(next_queue_number: int = 1) -> bytes:
    content: dict[str, Json] = {"format": FORMAT}
    if next_queue_number > 1:
        content[NEXT_QUEUE_NUMBER] = next_queue_number
    return checked_line(content)


def definition_line(command: Command, number: int = 0) -> bytes:
    content = command_to_json(command)
    if number:
        content[NUMBER] = number
    return checked_line(content)


def command_in(line: bytes) -> Command:
    return parse_definition(line_content(line))[0]


def parse_definition(content: dict[str, Json]) -> tuple[Command, int]:
    """A command, and the number of the queue that it declares. ValueError if it is neither."""
    number = content.pop(NUMBER, 0)
    command = command_from_json(content)
    if type(number) is not int or (number > 0) is not isinstance(command, DeclareQueue):
        raise ValueError(f"expected a {NUMBER} with declare_queue, and with nothing else")
    return command, number
