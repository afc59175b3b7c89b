"""`warren exchanges`."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, completing, listing, nouns, over_http, show_list
from warren.cli.publishing import publish_message, publishing
from warren.cli.values import arguments_option

COLUMNS = ("name", "type", "durable", "auto_delete", "internal")
exchange_argument = click.argument("exchange", metavar="EXCHANGE", shell_complete=completing("exchanges"))

exchanges = nouns("exchanges", "Exchanges: list, show, declare, delete, and publish to them.")


@exchanges.verb("ls", "list")
@over_http
@listing
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List exchanges, those of one vhost with --vhost."""
    default = COLUMNS if remote.vhosts else ("vhost", *COLUMNS)
    show_list(remote, "exchanges", *remote.vhosts, query=query, columns=columns, default=default)


@exchanges.verb("show", "info")
@over_http
@exchange_argument
def show(remote: Remote, exchange: str) -> None:
    """Show all that is known of an exchange."""
    remote.printer.record(remote.api.get("exchanges", remote.vhost, exchange))


@exchanges.verb("declare", "add")
@over_http
@click.argument("exchange", metavar="EXCHANGE")
@click.option("--type", "kind", default="direct", show_default=True, metavar="TYPE", help="its type")
@click.option("--durable/--transient", default=True, help="whether it survives a restart (it does)")
@click.option("--auto-delete", is_flag=True, help="delete it after its last binding")
@click.option("--internal", is_flag=True, help="only other exchanges may publish to it")
@arguments_option
def declare(
    remote: Remote,
    exchange: str,
    *,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: tuple[tuple[str, object], ...],
) -> None:
    """Declare an exchange."""
    content = {
        "type": kind,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": dict(arguments),
    }
    remote.api.put("exchanges", remote.vhost, exchange, content=content)
    remote.printer.said(f"exchange '{exchange}' declared")


@exchanges.verb("delete", "rm")
@over_http
@exchange_argument
@click.option("--if-unused", is_flag=True, help="only if nothing is bound to it")
def delete(remote: Remote, exchange: str, *, if_unused: bool) -> None:
    """Delete an exchange."""
    query = {"if-unused": "true"} if if_unused else {}
    remote.api.delete("exchanges", remote.vhost, exchange, query=query)
    remote.printer.said(f"exchange '{exchange}' deleted")


@exchanges.verb("publish")
@over_http
@exchange_argument
@publishing
def publish(
    remote: Remote,
    exchange: str,
    routing_key: str,
    payload: str | None,
    *,
    properties: tuple[tuple[str, object], ...],
    headers: tuple[tuple[str, object], ...],
) -> None:
    """Publish a message to an exchange. Without a payload it is read from the standard input."""
    publish_message(remote, exchange, routing_key, payload, properties=properties, headers=headers)
