"""`warren bindings`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from warren.cli.grammar import Failed, Remote, completing, listing, nouns, over_http, show_list
from warren.cli.values import arguments_option
from warren.client.api import Row

COLUMNS = ("source", "destination", "destination_type", "routing_key", "arguments")

bindings = nouns("bindings", "Bindings: list, add and remove them.")


@dataclass(frozen=True)
class Between:
    """The binding that a command is about, as its arguments name it."""

    source: str
    destination: str
    to_exchange: bool
    key: str
    arguments: Row

    def path(self, remote: Remote) -> tuple[str, ...]:
        kind = "e" if self.to_exchange else "q"
        return "bindings", remote.vhost, "e", self.source, kind, self.destination


def _destinations(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    kind = "exchanges" if context.params.get("to_exchange") else "queues"
    return completing(kind)(context, parameter, begun)


def between(command: Callable[[Remote, Between], None]) -> Callable[..., None]:
    """Give the command a `Between`, and the options that say which."""

    @click.argument("source", shell_complete=completing("exchanges"))
    @click.argument("destination", shell_complete=_destinations)
    @click.option("--key", default="", metavar="KEY", help="the routing key")
    @click.option("--to-exchange", is_flag=True, help="the destination is an exchange")
    @arguments_option
    @functools.wraps(command)
    def run(remote: Remote, *, arguments: tuple[tuple[str, object], ...], **named: Any) -> None:
        command(remote, Between(arguments=dict(arguments), **named))

    return run


@bindings.verb("ls", "list")
@over_http
@listing
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List bindings, those of one vhost with --vhost."""
    default = COLUMNS if remote.vhosts else ("vhost", *COLUMNS)
    show_list(remote, "bindings", *remote.vhosts, query=query, columns=columns, default=default)


@bindings.verb("add", "declare")
@over_http
@between
def add(remote: Remote, binding: Between) -> None:
    """Bind a queue, or an exchange, to the exchange SOURCE."""
    content = {"routing_key": binding.key, "arguments": binding.arguments}
    remote.api.post(*binding.path(remote), content=content)
    remote.printer.said(f"'{binding.destination}' bound to '{binding.source}'")


@bindings.verb("rm", "delete")
@over_http
@between
def rm(remote: Remote, binding: Between) -> None:
    """Remove the binding that has this key and these arguments."""
    path, wanted = binding.path(remote), (binding.key, binding.arguments)
    found = [row for row in remote.api.get(*path) if (row["routing_key"], row["arguments"]) == wanted]
    if not found:
        raise Failed(
            f"'{binding.destination}' is not bound to '{binding.source}' by the key '{binding.key}' "
            "with these arguments"
        )
    remote.api.delete(*path, found[0]["properties_key"])
    remote.printer.said(f"'{binding.destination}' no longer bound to '{binding.source}'")
