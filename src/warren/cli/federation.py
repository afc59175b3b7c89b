"""`warren federation`: links, upstreams and sets of upstreams."""

from __future__ import annotations

import click

from warren.cli.grammar import Failed, Nouns, Remote, completing, listing, nouns, over_http, show_list
from warren.cli.uris import filled_in
from warren.cli.values import JsonObject, JsonValue
from warren.client.api import Row

UPSTREAM, UPSTREAM_SET = "federation-upstream", "federation-upstream-set"
LINK_COLUMNS = ("vhost", "type", "exchange", "queue", "upstream", "status", "uri", "error", "id")


federation = nouns("federation", "Federation: links, upstreams and sets of upstreams.")
links = nouns("links", "Federation links: list them, start them again.")
upstreams = nouns("upstreams", "Upstreams: list, set and delete them.")
upstream_sets = nouns("upstream-sets", "Sets of upstreams: list, set and delete them.")
for group in (links, upstreams, upstream_sets):
    federation.add_command(group)


@links.verb("ls", "list")
@over_http
@listing
@click.option("--down", is_flag=True, help="only those that have failed")
def list_links(remote: Remote, columns: tuple[str, ...], query: dict[str, str], *, down: bool) -> None:
    """List federation links, those of one vhost with --vhost."""
    path = ("federation-links", *remote.vhosts, *(("state", "down") if down else ()))
    show_list(remote, *path, query=query, columns=columns, default=LINK_COLUMNS)


@links.verb("restart")
@over_http
@click.argument("link", shell_complete=completing("federation-links", field="id"))
def restart(remote: Remote, link: str) -> None:
    """Start a link of the vhost again; LINK is its id."""
    rows = remote.api.get("federation-links", remote.vhost)
    found = next((row for row in rows if row["id"] == link), None)
    if found is None:
        raise Failed(f"no federation link '{link}' in vhost '{remote.vhost}'")
    remote.api.delete("federation-links", "vhost", remote.vhost, link, str(found["node"]), "restart")
    remote.printer.said(f"federation link '{link}' starts again")


@upstreams.verb("set")
@over_http
@click.argument("name")
@click.argument("uri")
@click.argument("fields", type=JsonObject(), required=False)
def set_upstream(remote: Remote, name: str, uri: str, fields: Row | None) -> None:
    """Set an upstream of the vhost: its URI, and further fields such as '{"max-hops": 2}'. In the URI,
    ${NAME} is a variable of the environment, so that no password is among the arguments.
    """
    _set(remote, UPSTREAM, name, {"uri": filled_in(uri), **(fields or {})})
    remote.printer.said(f"upstream '{name}' set")


@upstream_sets.verb("set")
@over_http
@click.argument("name")
@click.argument("upstreams", type=JsonValue())
def set_upstream_set(remote: Remote, name: str, upstreams: object) -> None:
    """Set a set of upstreams, such as '[{"upstream": "one"}, {"upstream": "other"}]'."""
    _set(remote, UPSTREAM_SET, name, upstreams)
    remote.printer.said(f"upstream set '{name}' set")


def _set(remote: Remote, component: str, name: str, value: object) -> None:
    content = {"component": component, "vhost": remote.vhost, "name": name, "value": value}
    remote.api.put("parameters", component, remote.vhost, name, content=content)


def _add_ls_and_delete(group: Nouns, component: str, what: str) -> None:
    @group.verb("ls", "list")
    @over_http
    @listing
    def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
        path = ("parameters", component, *remote.vhosts)
        default = ("vhost", "name", "value")
        show_list(remote, *path, query=query, columns=columns, default=default, has_secrets=True)

    @group.verb("delete", "rm", "clear")
    @over_http
    @click.argument("name", shell_complete=completing("parameters", component))
    def delete(remote: Remote, name: str) -> None:
        remote.api.delete("parameters", component, remote.vhost, name)
        remote.printer.said(f"{what} '{name}' deleted")

    ls.help = f"List {what}s, those of one vhost with --vhost, with *** for passwords in URIs."
    delete.help = f"Delete an {what}."


_add_ls_and_delete(upstreams, UPSTREAM, "upstream")
_add_ls_and_delete(upstream_sets, UPSTREAM_SET, "upstream set")
