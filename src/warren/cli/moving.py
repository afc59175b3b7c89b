"""`warren import rabbitmq`: take over a RabbitMQ's definitions and messages."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from typing import TextIO

import click

from warren.cli.grammar import Failed, guarded
from warren.cli.numbers import UINT16_MAX, Whole
from warren.cli.output import Printer
from warren.cli.target import Given, Target, TargetError, find_target, read_amqp_uri, with_files
from warren.cli.text import printable
from warren.client.api import Api, ApiError, Row, Unreachable
from warren.client.uri import Uri, UriTls
from warren.moving.drain import BATCH
from warren.moving.report import QueueReport
from warren.moving.takeover import Plan, Takeover
from warren.perf.screen import ERASE_LINE

COLUMNS = ("vhost", "queue", "moved", "left", "differences")
NAMED = ("queues", "users", "vhosts")  # lists of definitions that are looked into, whose objects have names


@click.group("import", no_args_is_help=True)
def import_() -> None:
    """Move in from another broker."""


@import_.command("rabbitmq")
@click.option(
    "--url", metavar="URL", help="the RabbitMQ's management API; needed unless --definitions is given"
)
@click.option("--amqp", metavar="URI", help="where the RabbitMQ speaks AMQP (as its management API says)")
@click.option(
    "--definitions",
    "file",
    type=click.File("r", encoding="utf-8"),
    help="take the definitions of this file, exported from RabbitMQ",
)
@click.option("--cacert", metavar="FILE", help="certificates that a RabbitMQ with TLS is checked by")
@click.option("--to", metavar="URL", help="our HTTP API (http://127.0.0.1:15672)")
@click.option("--to-amqp", metavar="URI", help="where our broker speaks AMQP (as its HTTP API says)")
@click.option("--to-cacert", metavar="FILE", help="certificates that our broker is checked by")
@click.option("--profile", metavar="NAME", help="our broker, by a name of profiles.toml")
@click.option("-p", "--vhost", metavar="NAME", help="only this vhost")
@click.option("--no-users", is_flag=True, help="leave out users and permissions")
@click.option("--no-definitions", is_flag=True, help="only move messages: all queues are here already")
@click.option("--no-messages", is_flag=True, help="only take over definitions")
@click.option(
    "--batch", type=Whole(1, UINT16_MAX), default=BATCH, help=f"messages in flight at a time ({BATCH})"
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def rabbitmq(
    *,
    url: str | None,
    amqp: str | None,
    file: TextIO | None,
    cacert: str | None,
    to: str | None,
    to_amqp: str | None,
    to_cacert: str | None,
    profile: str | None,
    vhost: str | None,
    no_users: bool,
    no_definitions: bool,
    no_messages: bool,
    batch: int,
    as_json: bool,
) -> int:
    """Take over definitions through RabbitMQ's management API, or from a file, and then move the messages
    of its queues, in order, and copy its streams. A message is acked there when it is confirmed here.

    If it is stopped, run it again: it goes on with what is left. At most the messages that were in flight
    arrive twice. RabbitMQ's password comes from its URL, from WARREN_SOURCE_PASSWORD, or from a prompt;
    ours as for all commands.
    """

    def work() -> None:
        if url is None and (file is None or amqp is None):
            raise TargetError("give --url, or both --definitions and --amqp")
        plan = Plan(
            vhost=vhost,
            definitions=None if file is None else read_definitions(file),
            with_definitions=not no_definitions,
            with_users=not no_users,
            with_messages=not no_messages,
            batch=batch,
        )
        target = find_target(Given(to, profile, tls=UriTls(to_cacert or "")))
        progress = Progress(sys.stderr)
        with ExitStack() as stack:
            source, source_amqp = _source(url, amqp, UriTls(cacert or ""), stack)
            api = stack.enter_context(target.api())
            takeover = Takeover(
                plan,
                source=source,
                source_amqp=source_amqp,
                to=api,
                to_amqp=target.amqp_uri(api, to_amqp),
                progress=progress.show,
            )
            rows = takeover.run()
        progress.clear()
        for remark in takeover.remarks:
            sys.stderr.write(f"{remark}\n")
        report(rows, Printer(as_json=as_json), takeover)

    def work_with_two() -> None:
        """Say which of the two brokers has refused."""
        try:
            work()
        except ApiError as error:
            raise Failed(f"{error.address} refused: {error}") from error

    return guarded(work_with_two)


def _source(url: str | None, amqp: str | None, tls: UriTls, stack: ExitStack) -> tuple[Api | None, Uri]:
    if url is None:
        assert amqp is not None, "checked before"
        return None, with_files(read_amqp_uri(amqp), tls)
    target = find_source(url, tls)
    api = stack.enter_context(target.api())
    return api, target.amqp_uri(api, amqp)


def find_source(url: str, tls: UriTls) -> Target:
    """The RabbitMQ. It has nothing to do with our profiles, nor with our password."""
    password = os.environ.get("WARREN_SOURCE_PASSWORD")
    environment = {} if password is None else {"WARREN_PASSWORD": password}
    return find_target(Given(url, tls=tls), environment=environment, with_profiles=False)


def read_definitions(file: TextIO) -> Row:
    try:
        content = json.load(file)
    except ValueError as error:
        raise TargetError(f"--definitions {file.name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise TargetError(f"--definitions {file.name} has no definitions")
    for kind, rows in content.items():
        if kind in NAMED and not _are_objects(rows or [], "name"):
            raise TargetError(f"--definitions {file.name}: {kind}: expected a list of objects with names")
        if isinstance(rows, list) and not _are_objects(rows):
            raise TargetError(f"--definitions {file.name}: {kind}: expected a list of objects")
    return content


def _are_objects(rows: object, *needed: str) -> bool:
    """Whether it is a list of objects that have texts in these fields."""
    return isinstance(rows, list) and all(
        isinstance(row, dict) and all(isinstance(row.get(name), str) for name in needed) for row in rows
    )


def report(rows: list[QueueReport], printer: Printer, takeover: Takeover) -> None:
    printer.table([[row.as_json() for row in rows]], COLUMNS)
    if takeover.is_cut_off:
        raise Unreachable(takeover.trouble)
    unwell = [row for row in rows if not row.is_well]
    if unwell:
        raise Failed(f"{len(unwell)} of {len(rows)} queues are not done: see their differences")
    if takeover.trouble:
        raise Failed(takeover.trouble)


class Progress:
    """A line that is rewritten, on terminals only."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty()

    def show(self, line: str) -> None:
        if self._live:
            self._out.write(f"{ERASE_LINE}{printable(line)}")
            self._out.flush()

    def clear(self) -> None:
        if self._live:
            self._out.write(ERASE_LINE)
