"""`warren definitions`: all that is defined, as RabbitMQ's JSON."""

from __future__ import annotations

import json
from typing import TextIO

import click

from warren.cli.grammar import Failed, Remote, nouns, over_http

definitions = nouns("definitions", "Definitions of the broker or a vhost: export and import them.")


@definitions.verb("export")
@over_http
@click.argument("file", type=click.File("w", encoding="utf-8", atomic=True), default="-")
def export(remote: Remote, file: TextIO) -> None:
    """Write the definitions of the broker, or of one vhost with --vhost, to a file."""
    content = remote.api.get("definitions", *remote.vhosts)
    file.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@definitions.verb("import")
@over_http
@click.argument("file", type=click.File("r", encoding="utf-8"))
def load(remote: Remote, file: TextIO) -> None:
    """Add what a file defines to the broker, or to one vhost with --vhost. Nothing is deleted."""
    try:
        content = json.load(file)
    except ValueError as error:
        raise Failed(f"{file.name} is not JSON: {error}") from error
    remote.api.post("definitions", *remote.vhosts, content=content)
    remote.printer.said("definitions imported")
