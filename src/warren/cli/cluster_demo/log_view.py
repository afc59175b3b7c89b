"""The log of the demo: what all brokers log, and what the demo says itself, one line after the other, with a
colour for each broker.

A node has many shards, whose roles change together. So these changes are gathered for a moment, and told in
one line.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from warren.cli.text import cell, printable

COLOURS = ("cyan", "magenta", "green", "blue", "bright_cyan", "bright_magenta", "bright_green", "bright_blue")
LEVELS = {"warning": "yellow", "error": "bold red", "critical": "bold red"}
HEAD = {"event", "level", "timestamp", "exception"}
ROLE_EVENT = "a shard's role"
ROLES = {
    "open": "leads",
    "follower": "follows",
    "suspended": "holds back, since a node that is in sync does not answer:",
}
"""What is told of the roles of shards. Others do not last."""
GATHER_SECONDS = 0.2
HIDDEN = {"slow turn"}  # a broker that was paused says that, and so do all on a busy machine
ETCD = "etcd"
DEMO = "demo"


class Paper(Console):
    """What the log is written on. Rich would end the program when the reader of a pipe has gone."""

    def __init__(self, out: TextIO, on_lost: Callable[[], None]) -> None:
        super().__init__(file=out, highlight=False, soft_wrap=True)
        self.on_lost = on_lost

    def on_broken_pipe(self) -> None:
        self.quiet = True
        self.on_lost()


class LogView:
    def __init__(self, out: TextIO, names: list[str], *, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called when nobody reads what is written any more."""
        self.console = Paper(out, on_lost)
        self.width = max(map(len, [*names, DEMO]))  # of the column with names
        self.colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
        self.is_brief = False  # whether to show only what is wrong
        self.roles: dict[str, dict[int, str]] = {}  # by node and shard: what is to be told

    # --- lines ---

    def tell(self, text: str, *, style: str = "bold") -> None:
        """The demo says something."""
        self._line(DEMO, Text(text, style), style)

    def show(self, what: RenderableType) -> None:
        """What has more than one line."""
        self.console.print(what)

    def log_text(self, name: str, text: str) -> None:
        self._line(name, Text(printable(text)), self.colours.get(name, ""))

    def log_line(self, name: str, line: str) -> bool:
        """A line of a broker's log, as JSON. What is no such line is shown as it is; return False then."""
        try:
            told: dict[str, Any] = json.loads(line)
            event, level = str(told["event"]), str(told.get("level", ""))
        except (ValueError, KeyError, TypeError):
            self.log_text(name, line)
            return False
        if event in HIDDEN or (self.is_brief and level not in LEVELS):
            return True
        if event == ROLE_EVENT:
            self._gather(name, int(told["shard"]), str(told["role"]))
            return True
        text = Text(printable(event), LEVELS.get(level, ""))
        for field, value in told.items():
            if field not in HEAD:
                told_value = " ".join(map(cell, value)) if isinstance(value, list) else cell(value)
                text.append(f" {field}={told_value}", "dim")
        self._line(name, text, self.colours.get(name, ""))
        for each in str(told.get("exception", "")).splitlines():
            self._line(name, Text(printable(each), "red"), self.colours.get(name, ""))
        return True

    def _line(self, name: str, text: Text, style: str) -> None:
        now = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
        self.console.print(Text.assemble((now, "dim"), " ", (name.rjust(self.width), style), " ", text))

    # --- roles of shards ---

    def _gather(self, name: str, shard: int, role: str) -> None:
        if name not in self.roles:
            self.roles[name] = {}
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._tell_roles, name)
        self.roles[name][shard] = role

    def _tell_roles(self, name: str) -> None:
        found = self.roles.pop(name)
        for role, verb in ROLES.items():
            shards = sorted(shard for shard, its in found.items() if its == role)
            if shards:
                noun = "shard" if len(shards) == 1 else "shards"
                text = f"{verb} {noun} {' '.join(map(str, shards))}"
                self.log_text(name, text)
