"""`warren bindings`."""

from __future__ import annotations

import click

from warren.cli.grammar import Failed, Remote, listing, nouns, over_http, show_list
from warren.cli.values import arguments_option

COLUMNS = ("source", "destination", "destination_type", "routing_key", "arguments")

bindings = nouns("bindings", "Bindings: list, add and remove them.")
to_exchange_option = click.option("--to-exchange", is_flag=True, help="the destination is an exchange")
key_option = click.option("--key", default="", metavar="KEY", help="the routing key")


@bindings.verb("ls", "list")
@over_http
@listing
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List bindings, those of one vhost with --vhost."""
    default = COLUMNS if remote.vhosts else ("vhost", *COLUMNS)
    show_list(remote, "bindings", *remote.vhosts, query=query, columns=columns, default=default)


@bindings.verb("add", "declare")
@over_http
@click.argument("source")
@click.argument("destination")
@key_option
@to_exchange_option
@arguments_option
def add(
    remote: Remote,
    source: str,
    destination: str,
    *,
    key: str,
    to_exchange: bool,
    arguments: tuple[tuple[str, object], ...],
) -> None:
    """Bind a queue, or an exchange, to the exchange SOURCE."""
    content = {"routing_key": key, "arguments": dict(arguments)}
    remote.api.post(*_path(remote, source, destination, to_exchange=to_exchange), content=content)
    remote.printer.said(f"'{destination}' bound to '{source}'")


@bindings.verb("rm", "delete")
@over_http
@click.argument("source")
@click.argument("destination")
@key_option
@to_exchange_option
@arguments_option
def rm(
    remote: Remote,
    source: str,
    destination: str,
    *,
    key: str,
    to_exchange: bool,
    arguments: tuple[tuple[str, object], ...],
) -> None:
    """Remove the binding that has this key and these arguments."""
    path = _path(remote, source, destination, to_exchange=to_exchange)
    wanted = key, dict(arguments)
    found = [row for row in remote.api.get(*path) if (row["routing_key"], row["arguments"]) == wanted]
    if not found:
        raise Failed(f"'{destination}' is not bound to '{source}' by the key '{key}' with these arguments")
    remote.api.delete(*path, found[0]["properties_key"])
    remote.printer.said(f"'{destination}' no longer bound to '{source}'")


def _path(remote: Remote, source: str, destination: str, *, to_exchange: bool) -> tuple[str, ...]:
    return "bindings", remote.vhost, "e", source, "e" if to_exchange else "q", destination
