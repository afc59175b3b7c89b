"""`warren parameters`, of a component in a vhost, and `warren global-parameters`, of the whole broker."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, listing, nouns, over_http, show_list
from warren.cli.values import JsonValue

parameters = nouns("parameters", "Parameters: list, set and delete them.")
global_parameters = nouns("global-parameters", "Parameters of the whole broker: list, set and delete them.")


@parameters.verb("ls", "list")
@over_http
@listing
@click.option("--component", metavar="NAME", help="only those of this component")
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str], component: str | None) -> None:
    """List parameters, those of one vhost with --vhost, with *** for passwords in URIs."""
    vhosts = remote.vhosts if component else ()
    path = ("parameters", *((component,) if component else ()), *vhosts)
    default = ("vhost", "component", "name", "value")
    show_list(
        remote,
        *path,
        query=query,
        columns=columns,
        default=default,
        vhost=remote.target.vhost,
        has_secrets=True,
    )


@parameters.verb("set")
@over_http
@click.argument("component")
@click.argument("name")
@click.argument("value", type=JsonValue())
def set_parameter(remote: Remote, component: str, name: str, value: object) -> None:
    """Set a parameter of a component in the vhost; the value is JSON, or a text."""
    content = {"component": component, "vhost": remote.vhost, "name": name, "value": value}
    remote.api.put("parameters", component, remote.vhost, name, content=content)
    remote.printer.said(f"parameter '{name}' of {component} set")


@parameters.verb("delete", "rm", "clear")
@over_http
@click.argument("component")
@click.argument("name")
def delete(remote: Remote, component: str, name: str) -> None:
    """Delete a parameter."""
    remote.api.delete("parameters", component, remote.vhost, name)
    remote.printer.said(f"parameter '{name}' of {component} deleted")


@global_parameters.verb("ls", "list")
@over_http
@listing
def list_global(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List global parameters."""
    default = ("name", "value")
    show_list(remote, "global-parameters", query=query, columns=columns, default=default, has_secrets=True)


@global_parameters.verb("set")
@over_http
@click.argument("name")
@click.argument("value", type=JsonValue())
def set_global(remote: Remote, name: str, value: object) -> None:
    """Set a global parameter; the value is JSON, or a text."""
    remote.api.put("global-parameters", name, content={"name": name, "value": value})
    remote.printer.said(f"global parameter '{name}' set")


@global_parameters.verb("delete", "rm", "clear")
@over_http
@click.argument("name")
def delete_global(remote: Remote, name: str) -> None:
    """Delete a global parameter."""
    remote.api.delete("global-parameters", name)
    remote.printer.said(f"global parameter '{name}' deleted")
