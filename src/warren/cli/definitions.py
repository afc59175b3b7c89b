"""`warren definitions`: all that is defined, as RabbitMQ's JSON."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TextIO

import click

from warren.cli.grammar import Failed, Remote, nouns, over_http

STDOUT = Path("-")

definitions = nouns("definitions", "Definitions of the broker or a vhost: export and import them.")


@definitions.verb("export")
@over_http
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=STDOUT)
def export(remote: Remote, file: Path) -> None:
    """Write the definitions of the broker, or of one vhost with --vhost, to a file or the standard output.

    Only its owner can read the file, since it has hashes of passwords in it.
    """
    content = remote.api.get("definitions", *remote.vhosts)
    if file == STDOUT:
        remote.printer.json(content)
        return
    try:
        _write_privately(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise Failed(f"{file}: {error.strerror}") from error
    remote.printer.said(f"definitions written to {file}")


def _write_privately(path: Path, text: str) -> None:
    """All of it or nothing. Temporary files are for their owner alone."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as new:
        try:
            new.write(text)
            new.flush()
            Path(new.name).replace(path)
        except BaseException:
            Path(new.name).unlink()
            raise


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
