"""`warren queues`."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, completing, listing, nouns, over_http, show_list
from warren.cli.values import arguments_option
from warren.client.api import Row

COLUMNS = ("name", "type", "state", "messages", "messages_ready", "messages_unacknowledged", "consumers")
queue_argument = click.argument("queue", metavar="QUEUE", shell_complete=completing("queues"))

queues = nouns("queues", "Queues: list, show, declare, delete and purge them.")


@queues.verb("ls", "list")
@over_http
@listing
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List queues, those of one vhost with --vhost. COLUMN is any field, such as message_stats.publish."""
    default = COLUMNS if remote.vhosts else ("vhost", *COLUMNS)
    show_list(remote, "queues", *remote.vhosts, query=query, columns=columns, default=default)


@queues.verb("show", "info")
@over_http
@queue_argument
def show(remote: Remote, queue: str) -> None:
    """Show all that is known of a queue."""
    remote.printer.record(remote.api.get("queues", remote.vhost, queue))


@queues.verb("declare", "add")
@over_http
@click.argument("queue", metavar="QUEUE")
@click.option("--type", "kind", metavar="TYPE", help="the queue's type: classic, quorum or stream")
@click.option("--durable/--transient", default=True, help="whether it survives a restart (it does)")
@click.option("--auto-delete", is_flag=True, help="delete it after its last consumer")
@arguments_option
def declare(
    remote: Remote,
    queue: str,
    *,
    kind: str | None,
    durable: bool,
    auto_delete: bool,
    arguments: tuple[tuple[str, object], ...],
) -> None:
    """Declare a queue."""
    table: Row = ({} if kind is None else {"x-queue-type": kind}) | dict(arguments)
    content = {"durable": durable, "auto_delete": auto_delete, "arguments": table}
    remote.api.put("queues", remote.vhost, queue, content=content)
    remote.printer.said(f"queue '{queue}' declared")


@queues.verb("delete", "rm")
@over_http
@queue_argument
@click.option("--if-empty", is_flag=True, help="only if it has no messages")
@click.option("--if-unused", is_flag=True, help="only if it has no consumers")
def delete(remote: Remote, queue: str, *, if_empty: bool, if_unused: bool) -> None:
    """Delete a queue with its messages."""
    query = {name: "true" for name, given in (("if-empty", if_empty), ("if-unused", if_unused)) if given}
    remote.api.delete("queues", remote.vhost, queue, query=query)
    remote.printer.said(f"queue '{queue}' deleted")


@queues.verb("purge")
@over_http
@queue_argument
def purge(remote: Remote, queue: str) -> None:
    """Delete all messages of a queue that are ready."""
    remote.api.delete("queues", remote.vhost, queue, "contents")
    remote.printer.said(f"queue '{queue}' purged")
