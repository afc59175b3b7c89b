"""What `warren top` asks the broker for, and how it shows the answers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from warren.cli.drawing import table
from warren.cli.health import alarms_of, nodes_of
from warren.cli.product import product_of
from warren.cli.text import cell, value_at
from warren.client.api import Api, Row

SPECIAL_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")
RATE_IN, RATE_OUT = "message_stats.publish_details.rate", "message_stats.deliver_get_details.rate"
SIZES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


@dataclass(frozen=True)
class Column:
    title: str
    field: str
    is_bytes: bool = False


@dataclass(frozen=True)
class View:
    """A list of the API as a table, with the keys that sort it."""

    name: str
    path: str
    columns: tuple[Column, ...]
    sorts: dict[str, str]
    """The column to sort by, by key."""
    sort: str
    """The column it is sorted by at first."""


QUEUES = View(
    name="queues",
    path="queues",
    columns=(
        Column("vhost", "vhost"),
        Column("queue", "name"),
        Column("in/s", RATE_IN),
        Column("out/s", RATE_OUT),
        Column("ready", "messages_ready"),
        Column("unacked", "messages_unacknowledged"),
        Column("consumers", "consumers"),
        Column("memory", "memory", is_bytes=True),
    ),
    sorts={"i": RATE_IN, "o": RATE_OUT, "d": "messages", "m": "memory", "n": "name"},
    sort="messages",
)
CONNECTIONS = View(
    name="connections",
    path="connections",
    columns=(
        Column("vhost", "vhost"),
        Column("connection", "name"),
        Column("user", "user"),
        Column("state", "state"),
        Column("channels", "channels"),
        Column("in/s", "recv_oct_details.rate", is_bytes=True),
        Column("out/s", "send_oct_details.rate", is_bytes=True),
    ),
    sorts={"i": "recv_oct_details.rate", "o": "send_oct_details.rate", "n": "name", "c": "channels"},
    sort="recv_oct_details.rate",
)


@dataclass(frozen=True)
class Snapshot:
    """What the broker answered at one time."""

    overview: Row
    nodes: list[Row]
    """Empty if the user may not see them."""
    rows: list[Row]
    count: int
    """How many rows there are in all."""


@dataclass
class Choice:
    """What is shown, as the keys have chosen it."""

    view: View = QUEUES
    sort: str = QUEUES.sort
    text: str = ""
    """Only rows whose name has this in it."""
    vhost: str | None = None
    typing: bool = False
    """Whether keys go into `text`."""

    def press(self, keys: str) -> bool:
        """Take what was typed; return whether to go on. Keys such as arrows, which begin with that of Escape,
        do nothing.
        """
        return all(self._press(key) for key in SPECIAL_KEY.sub("", keys))

    def _press(self, key: str) -> bool:
        if self.typing:
            self._type(key)
        elif key == "/":
            self.typing = True
        elif key == "\t":
            self._show(CONNECTIONS if self.view is QUEUES else QUEUES)
        elif key in self.view.sorts:
            self.sort = self.view.sorts[key]
        elif key in {"q", "\x1b"}:
            return False
        return True

    def _type(self, key: str) -> None:
        if key in {"\r", "\n"}:
            self.typing = False
        elif key == "\x1b":
            self.typing, self.text = False, ""
        elif key in {"\x7f", "\b"}:
            self.text = self.text[:-1]
        elif key.isprintable():
            self.text += key

    def _show(self, view: View) -> None:
        self.view, self.sort = view, view.sort


def look(api: Api, choice: Choice, rows_max: int) -> Snapshot:
    """Ask the broker. It sorts, so that only the rows that are shown have to be sent."""
    columns = ",".join(dict.fromkeys([*(column.field for column in choice.view.columns), choice.sort]))
    query = {
        "page": "1",
        "page_size": str(rows_max),
        "sort": choice.sort,
        "sort_reverse": "false" if choice.sort == "name" else "true",
        "columns": columns,
    }
    if choice.text:
        query |= {"name": choice.text, "use_regex": "false"}
    answer = api.get(*path_of(choice), query=query)
    items = answer if isinstance(answer, list) else answer["items"]
    count = len(items) if isinstance(answer, list) else answer["filtered_count"]
    return Snapshot(api.get("overview"), nodes_of(api), items[:rows_max], count)


def path_of(choice: Choice) -> tuple[str, ...]:
    """Where the rows are: those of all vhosts, or of the one that was chosen."""
    path = choice.view.path
    if choice.vhost is None:
        return (path,)
    return (path, choice.vhost) if choice.view is QUEUES else ("vhosts", choice.vhost, path)


def draw(snapshot: Snapshot, choice: Choice) -> RenderableType:
    titles = [column.title + (" ▼" if is_sorted(column, choice) else "") for column in choice.view.columns]
    rows = [
        [figure(value_at(row, each.field), each) for each in choice.view.columns] for row in snapshot.rows
    ]
    return Group(*head(snapshot), Text(), table(rows, titles), foot(snapshot, choice))


def is_sorted(column: Column, choice: Choice) -> bool:
    return column.field == choice.sort or (choice.sort == "messages" and column.field == "messages_ready")


def head(snapshot: Snapshot) -> list[Text]:
    overview = snapshot.overview
    totals, objects = overview.get("queue_totals", {}), overview.get("object_totals", {})
    name = product_of(overview)
    lines = [
        Text(f"{name}  {overview.get('cluster_name', '')}", style="bold"),
        Text(
            f"messages: {totals.get('messages_ready', 0):,} ready, "
            f"{totals.get('messages_unacknowledged', 0):,} unacked   "
            f"in {rate_of(overview, 'publish')}/s, out {rate_of(overview, 'deliver_get')}/s"
        ),
        Text("   ".join(f"{count:,} {kind}" for kind, count in objects.items())),
    ]
    return [*lines, *map(node_line, snapshot.nodes)]


def rate_of(overview: Row, kind: str) -> str:
    return figure(value_at(overview, f"message_stats.{kind}_details.rate") or 0, None)


def node_line(node: Row) -> Text:
    if "mem_used" not in node:  # another node of the cluster: the one that is asked knows little of it
        there = node.get("running")
        return Text(f"{node.get('name')}: {'running' if there else 'not there'}", "" if there else "bold red")
    alarms = alarms_of(node)
    used, limit = size(node.get("mem_used", 0)), size(node.get("mem_limit", 0))
    line = Text(
        f"{node.get('name')}: memory {used} of {limit}, disk {size(node.get('disk_free', 0))} free   "
    )
    if alarms:
        line.append(f"ALARM: {', '.join(alarms)}", style="bold red")
    else:
        line.append("no alarms", style="green")
    return line


def foot(snapshot: Snapshot, choice: Choice) -> Text:
    shown = f"{len(snapshot.rows)} of {snapshot.count:,} {choice.view.name}"
    if choice.text or choice.typing:
        shown += f" with '{choice.text}{'_' if choice.typing else ''}'"
    sorts = "  ".join(f"{key} {title_of(by)}" for key, by in choice.view.sorts.items())
    return Text(f"{shown}   sort: {sorts}   / filter   Tab {other(choice.view)}   q quit", style="dim")


def title_of(sort: str) -> str:
    return {RATE_IN: "in", RATE_OUT: "out", "messages": "depth"}.get(sort) or (
        "in" if sort.startswith("recv") else "out" if sort.startswith("send") else sort
    )


def other(view: View) -> str:
    return CONNECTIONS.name if view is QUEUES else QUEUES.name


def figure(value: object, column: Column | None) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return size(value) if column is not None and column.is_bytes else f"{value:,.0f}"
    return cell(value)


def size(count: float) -> str:
    return next((f"{count / unit:.1f} {name}" for name, unit in SIZES if count >= unit), f"{count:.0f} B")
