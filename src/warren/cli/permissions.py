"""`warren permissions` and `warren topic-permissions`: what users may do in a vhost."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, listing, nouns, over_http, show_list
from warren.cli.users import user_argument

permissions = nouns("permissions", "Permissions of users in vhosts: list, set and clear them.")
topic_permissions = nouns("topic-permissions", "Permissions by routing key: list, set and clear them.")


def _show(
    remote: Remote,
    kind: str,
    default: tuple[str, ...],
    *,
    user: str | None,
    columns: tuple[str, ...],
    query: dict[str, str],
) -> None:
    """Print a list: of a user, of a vhost, or all."""
    path: tuple[str, ...] = (kind,)
    if user is not None:
        path = ("users", user, kind)
    elif remote.vhosts:
        path = ("vhosts", remote.vhost, kind)
    show_list(remote, *path, query=query, columns=columns, default=default, vhost=remote.target.vhost)


@permissions.verb("ls", "list")
@over_http
@listing
@click.option("--user", metavar="NAME", help="only those of this user")
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str], user: str | None) -> None:
    """List permissions, those of one vhost with --vhost."""
    default = ("vhost", "user", "configure", "write", "read")
    _show(remote, "permissions", default, user=user, columns=columns, query=query)


@permissions.verb("set")
@over_http
@user_argument
@click.argument("configure")
@click.argument("write")
@click.argument("read")
def set_permissions(remote: Remote, user: str, configure: str, write: str, read: str) -> None:
    """Set what a user may configure, write and read in the vhost, by regular expressions for names."""
    content = {"configure": configure, "write": write, "read": read}
    remote.api.put("permissions", remote.vhost, user, content=content)
    remote.printer.said(f"permissions of user '{user}' in vhost '{remote.vhost}' set")


@permissions.verb("clear", "delete")
@over_http
@user_argument
def clear(remote: Remote, user: str) -> None:
    """Take all permissions in the vhost from a user."""
    remote.api.delete("permissions", remote.vhost, user)
    remote.printer.said(f"permissions of user '{user}' in vhost '{remote.vhost}' cleared")


@topic_permissions.verb("ls", "list")
@over_http
@listing
@click.option("--user", metavar="NAME", help="only those of this user")
def list_topics(remote: Remote, columns: tuple[str, ...], query: dict[str, str], user: str | None) -> None:
    """List topic permissions, those of one vhost with --vhost."""
    default = ("vhost", "user", "exchange", "write", "read")
    _show(remote, "topic-permissions", default, user=user, columns=columns, query=query)


@topic_permissions.verb("set")
@over_http
@user_argument
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
def set_topics(remote: Remote, user: str, exchange: str, write: str, read: str) -> None:
    """Set which routing keys a user may write and read at a topic exchange, by regular expressions."""
    content = {"exchange": exchange, "write": write, "read": read}
    remote.api.put("topic-permissions", remote.vhost, user, content=content)
    remote.printer.said(f"topic permissions of user '{user}' in vhost '{remote.vhost}' set")


@topic_permissions.verb("clear", "delete")
@over_http
@user_argument
@click.argument("exchange", required=False)
def clear_topics(remote: Remote, user: str, exchange: str | None) -> None:
    """Take the topic permissions in the vhost from a user, at one exchange or at all."""
    path = () if exchange is None else (exchange,)
    remote.api.delete("topic-permissions", remote.vhost, user, *path)
    remote.printer.said(f"topic permissions of user '{user}' in vhost '{remote.vhost}' cleared")
