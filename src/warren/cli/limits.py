"""`warren limits`: of a vhost, or with --user of a user."""

from __future__ import annotations

from collections.abc import Sequence

import click

from warren.cli.grammar import Remote, nouns, over_http
from warren.client.api import Row

limits = nouns("limits", "Limits of vhosts and users: list, set and clear them.")
user_option = click.option("--user", metavar="NAME", help="of this user, and not of the vhost")


@limits.verb("ls", "list")
@over_http
@user_option
@click.option("--users", is_flag=True, help="of all users, and not of vhosts")
def ls(remote: Remote, *, user: str | None, users: bool) -> None:
    """List the limits of vhosts, of one with --vhost."""
    if user is not None or users:
        path: tuple[str, ...] = ("user-limits",) if user is None else ("user-limits", user)
        remote.printer.table(_single(remote.api.get(*path), "user"), ("user", "limit", "value"))
    else:
        rows = remote.api.get("vhost-limits", *remote.vhosts)
        remote.printer.table(_single(rows, "vhost"), ("vhost", "limit", "value"))


def _single(rows: Sequence[Row], of: str) -> list[list[Row]]:
    """A row for each limit, of rows that have all limits of one vhost or user."""
    return [
        [{of: row[of], "limit": name, "value": value} for row in rows for name, value in row["value"].items()]
    ]


@limits.verb("set")
@over_http
@click.argument("limit")
@click.argument("value", type=int)
@user_option
def set_limit(remote: Remote, limit: str, value: int, *, user: str | None) -> None:
    """Set a limit such as max-connections, max-queues or max-channels; -1 is none."""
    remote.api.put(*_path(remote, user), limit, content={"value": value})
    remote.printer.said(f"{limit} of {_owner(remote, user)} is {value}")


set_limit.context_settings["ignore_unknown_options"] = True  # -1 is a number, and no option


@limits.verb("clear", "delete")
@over_http
@click.argument("limit")
@user_option
def clear(remote: Remote, limit: str, *, user: str | None) -> None:
    """Take a limit away."""
    remote.api.delete(*_path(remote, user), limit)
    remote.printer.said(f"{limit} of {_owner(remote, user)} cleared")


def _path(remote: Remote, user: str | None) -> tuple[str, str]:
    return ("vhost-limits", remote.vhost) if user is None else ("user-limits", user)


def _owner(remote: Remote, user: str | None) -> str:
    return f"vhost '{remote.vhost}'" if user is None else f"user '{user}'"
