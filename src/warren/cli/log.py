"""`warren log`: follow the log of a broker over its HTTP API."""

from __future__ import annotations

import json

import click

from warren.cli.grammar import Remote, over_http
from warren.cli.numbers import Whole
from warren.cli.product import ours_alone
from warren.cli.text import cell
from warren.client.api import Row

LINES_DEFAULT = 20
WAIT_MS = 5000
HEAD = ("number", "timestamp", "level", "event")


@click.command("log")
@over_http
@click.option("-n", "--lines", type=Whole(), default=LINES_DEFAULT, help="how many old lines to show (20)")
@click.option("--follow/--no-follow", default=True, help="go on until Ctrl-C (it does)")
def log(remote: Remote, *, lines: int, follow: bool) -> None:
    """Print the last lines of a broker's log, and those that come. It takes an administrator."""
    with ours_alone(remote):
        answer = remote.api.get("log", query={"lines": str(lines)})
    _print(remote, answer["lines"])
    while follow:
        last = answer["last"]
        answer = remote.api.get("log", query={"after": str(last), "wait_ms": str(WAIT_MS)})
        if answer["last"] < last:  # the broker has started again, and counts anew
            answer = remote.api.get("log", query={})
        _print(remote, answer["lines"])


def _print(remote: Remote, lines: list[Row]) -> None:
    out = remote.printer.out
    for line in lines:
        out.write((json.dumps(line, ensure_ascii=False) if remote.printer.as_json else text_of(line)) + "\n")
    out.flush()


def text_of(line: Row) -> str:
    fields = " ".join(f"{name}={cell(value)}" for name, value in line.items() if name not in HEAD)
    return f"{line['timestamp']} [{line['level']}] {line['event']} {fields}".rstrip()
