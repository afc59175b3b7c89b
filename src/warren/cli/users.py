"""`warren users`. Passwords come from a prompt, or as the first line of the standard input."""

from __future__ import annotations

import sys

import click

from warren.cli.grammar import Failed, Remote, completing, listing, nouns, over_http, show_list
from warren.client.api import NOT_FOUND, ApiError, Row

user_argument = click.argument("user", metavar="USER", shell_complete=completing("users"))

users = nouns("users", "Users: list, show, add and delete them, and set their passwords and tags.")


@users.verb("ls", "list")
@over_http
@listing
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List users."""
    show_list(remote, "users", query=query, columns=columns, default=("name", "tags"))


@users.verb("show", "info")
@over_http
@user_argument
def show(remote: Remote, user: str) -> None:
    """Show a user."""
    remote.printer.record(remote.api.get("users", user))


@users.verb("add")
@over_http
@click.argument("user", metavar="USER")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--no-password", is_flag=True, help="the user cannot log in with a password")
def add(remote: Remote, user: str, tags: tuple[str, ...], *, no_password: bool) -> None:
    """Add a user with tags such as administrator, monitoring or management."""
    if _is_known(remote, user):
        raise Failed(f"user '{user}' is there already: see `warren users passwd` and `warren users tags`")
    login: Row = {"password_hash": ""} if no_password else {"password": new_password(user)}
    remote.api.put("users", user, content={**login, "tags": ",".join(tags)})
    remote.printer.said(f"user '{user}' added")


def _is_known(remote: Remote, user: str) -> bool:
    try:
        remote.api.get("users", user)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return False
    return True


@users.verb("delete", "rm")
@over_http
@user_argument
def delete(remote: Remote, user: str) -> None:
    """Delete a user."""
    remote.api.delete("users", user)
    remote.printer.said(f"user '{user}' deleted")


@users.verb("passwd", "change-password")
@over_http
@user_argument
def passwd(remote: Remote, user: str) -> None:
    """Set a user's password."""
    known = remote.api.get("users", user)
    content = {"password": new_password(user), "tags": tags_text(known["tags"])}
    remote.api.put("users", user, content=content)
    remote.printer.said(f"password of user '{user}' changed")


@users.verb("tags", "set-tags")
@over_http
@user_argument
@click.argument("tags", nargs=-1, metavar="[TAG]...")
def set_tags(remote: Remote, user: str, tags: tuple[str, ...]) -> None:
    """Set a user's tags; without any, the user has none."""
    known = remote.api.get("users", user)
    login = {name: known[name] for name in ("password_hash", "hashing_algorithm") if name in known}
    remote.api.put("users", user, content={**login, "tags": ",".join(tags)})
    remote.printer.said(f"tags of user '{user}' set")


def tags_text(tags: str | list[str]) -> str:
    """Tags as all versions of RabbitMQ take them; old ones also give them as a text."""
    return tags if isinstance(tags, str) else ",".join(tags)


def new_password(user: str) -> str:
    if sys.stdin.isatty():
        password: str = click.prompt(
            f"New password of {user}", hide_input=True, confirmation_prompt=True, err=True
        )
        return password
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise Failed("no password: its first line is read from the standard input")
    return password
