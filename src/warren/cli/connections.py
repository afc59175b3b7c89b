"""`warren connections`, `warren channels` and `warren consumers`: who uses the broker."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, completing, listing, nouns, over_http, show_list
from warren.cli.text import printable

CONNECTION_COLUMNS = ("name", "user", "state", "channels", "protocol", "user_provided_name")
CHANNEL_COLUMNS = ("name", "user", "consumer_count", "prefetch_count", "messages_unacknowledged", "state")
CONSUMER_COLUMNS = (
    "queue.name",
    "consumer_tag",
    "channel_details.name",
    "ack_required",
    "prefetch_count",
    "active",
)
connection_argument = click.argument(
    "connection", metavar="CONNECTION", shell_complete=completing("connections")
)

connections = nouns("connections", "Connections: list, show and close them.")
channels = nouns("channels", "Channels: list and show them.")
consumers = nouns("consumers", "Consumers: list them.")


@connections.verb("ls", "list")
@over_http
@listing
@click.option("--user", metavar="NAME", help="only those of this user")
def list_connections(
    remote: Remote, columns: tuple[str, ...], query: dict[str, str], user: str | None
) -> None:
    """List connections, those of one vhost with --vhost."""
    if user is not None:
        path: tuple[str, ...] = ("connections", "username", user)
    else:
        path = ("vhosts", remote.vhost, "connections") if remote.vhosts else ("connections",)
    default = ("vhost", *CONNECTION_COLUMNS)
    show_list(remote, *path, query=query, columns=columns, default=default, vhost=remote.target.vhost)


@connections.verb("show", "info")
@over_http
@connection_argument
def show_connection(remote: Remote, connection: str) -> None:
    """Show all that is known of a connection."""
    remote.printer.record(remote.api.get("connections", connection))


@connections.verb("close")
@over_http
@connection_argument
@click.option("--reason", default="Closed by `warren connections close`", help="what the client is told")
def close(remote: Remote, connection: str, *, reason: str) -> None:
    """Close a connection."""
    remote.api.delete("connections", connection, headers={"X-Reason": printable(reason)})
    remote.printer.said(f"connection '{connection}' closed")


@channels.verb("ls", "list")
@over_http
@listing
@click.option("--connection", metavar="NAME", help="only those of this connection")
def list_channels(
    remote: Remote, columns: tuple[str, ...], query: dict[str, str], connection: str | None
) -> None:
    """List channels, those of one vhost with --vhost."""
    if connection is not None:
        path: tuple[str, ...] = ("connections", connection, "channels")
    else:
        path = ("vhosts", remote.vhost, "channels") if remote.vhosts else ("channels",)
    show_list(remote, *path, query=query, columns=columns, default=("vhost", *CHANNEL_COLUMNS))


@channels.verb("show", "info")
@over_http
@click.argument("channel", metavar="CHANNEL", shell_complete=completing("channels"))
def show_channel(remote: Remote, channel: str) -> None:
    """Show all that is known of a channel."""
    remote.printer.record(remote.api.get("channels", channel))


@consumers.verb("ls", "list")
@over_http
@listing
def list_consumers(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List consumers, those of one vhost with --vhost."""
    default = CONSUMER_COLUMNS if remote.vhosts else ("queue.vhost", *CONSUMER_COLUMNS)
    show_list(remote, "consumers", *remote.vhosts, query=query, columns=columns, default=default)
