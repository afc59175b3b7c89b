"""`warren top`: a live view of a broker's queues, connections and alarms."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.live import Live

from warren.cli.grammar import Remote, over_http
from warren.cli.keys import Keys
from warren.cli.numbers import Seconds
from warren.cli.output import Printer
from warren.cli.top_view import CONNECTIONS, QUEUES, Choice, Snapshot, draw, look

ROWS_ONCE = 20
ROWS_MAX = 500
OTHER_LINES = 12  # of the screen, beside the rows of the table
INTERVAL_SECONDS, INTERVAL_SECONDS_MIN = 2.0, 0.2
SORTS = {"depth": "d", "in": "i", "out": "o", "memory": "m", "name": "n"}


@click.command("top")
@over_http
@click.option("--once", is_flag=True, help="print one view and end; so it does without a terminal")
@click.option("--connections", is_flag=True, help="show connections first")
@click.option("--sort", type=click.Choice(list(SORTS)), help="sort by this at first")
@click.option("--filter", "text", default="", metavar="TEXT", help="only those whose name has this in it")
@click.option(
    "--interval", type=Seconds(INTERVAL_SECONDS_MIN), default=INTERVAL_SECONDS, help="how often to look (2)"
)
def top(
    remote: Remote, *, once: bool, connections: bool, sort: str | None, text: str, interval: float
) -> None:
    """Watch the queues with the most messages, traffic or memory, the connections, and the alarms.

    Keys: d depth, i rate in, o rate out, m memory, n name; / filters, Tab changes to connections, q ends.
    """
    view = CONNECTIONS if connections else QUEUES
    choice = Choice(view=view, sort=view.sort, text=text, vhost=remote.target.vhost)
    if sort is not None:
        if SORTS[sort] not in view.sorts:
            raise click.UsageError(f"{view.name} cannot be sorted by {sort}")
        choice.sort = view.sorts[SORTS[sort]]
    if once or remote.printer.as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _print_once(remote.printer, look(remote.api, choice, ROWS_ONCE), choice)
    else:
        _watch(remote, choice, interval)


def _print_once(printer: Printer, snapshot: Snapshot, choice: Choice) -> None:
    if printer.as_json:
        printer.json(
            {"overview": snapshot.overview, "nodes": snapshot.nodes, choice.view.name: snapshot.rows}
        )
    elif printer.out.isatty():
        Console(file=printer.out, highlight=False).print(draw(snapshot, choice))
    else:
        printer.table([snapshot.rows], [column.field for column in choice.view.columns])


def _watch(remote: Remote, choice: Choice, interval: float) -> None:
    console = Console(highlight=False)
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            rows = max(1, min(console.size.height - OTHER_LINES, ROWS_MAX))
            snapshot = look(remote.api, choice, rows)
            live.update(draw(snapshot, choice), refresh=True)
            if not choice.press(keys.wait(interval)):
                return
