"""`warren completion`: what a shell needs to complete commands, options, and the names of queues."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell, to be sourced by its start-up file:

    eval "$(warren completion bash)"
    """
    from warren.cli.main import warren  # noqa: PLC0415 - which imports this module when it is named

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    click.echo(kind(warren, {}, "warren", "_WARREN_COMPLETE").source())
