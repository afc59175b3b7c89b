"""`warren vhosts`."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, completing, listing, nouns, over_http, show_list
from warren.client.api import Row

COLUMNS = ("name", "messages", "tracing", "description", "tags")
vhost_argument = click.argument("name", metavar="VHOST", shell_complete=completing("vhosts"))

vhosts = nouns("vhosts", "Vhosts: list, show, add and delete them.")


@vhosts.verb("ls", "list")
@over_http
@listing
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List vhosts."""
    show_list(remote, "vhosts", query=query, columns=columns, default=COLUMNS)


@vhosts.verb("show", "info")
@over_http
@vhost_argument
def show(remote: Remote, name: str) -> None:
    """Show a vhost."""
    remote.printer.record(remote.api.get("vhosts", name))


@vhosts.verb("add", "declare")
@over_http
@click.argument("name", metavar="VHOST")
@click.option("--description", metavar="TEXT", help="what it is for")
@click.option("--tags", metavar="TAG,TAG", help="tags, separated by commas")
@click.option("--default-queue-type", metavar="TYPE", help="the type of queues that name none")
def add(
    remote: Remote, name: str, *, description: str | None, tags: str | None, default_queue_type: str | None
) -> None:
    """Add a vhost, or change the description and tags of one."""
    given = {"description": description, "tags": tags, "default_queue_type": default_queue_type}
    content: Row = {key: value for key, value in given.items() if value is not None}
    remote.api.put("vhosts", name, content=content)
    remote.printer.said(f"vhost '{name}' added")


@vhosts.verb("delete", "rm")
@over_http
@vhost_argument
def delete(remote: Remote, name: str) -> None:
    """Delete a vhost with all that is in it."""
    remote.api.delete("vhosts", name)
    remote.printer.said(f"vhost '{name}' deleted")
