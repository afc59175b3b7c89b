"""`warren policies`, with --operator for operator policies."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, completing, listing, nouns, over_http, show_list
from warren.cli.values import JsonObject
from warren.client.api import Row

COLUMNS = ("vhost", "name", "pattern", "apply-to", "priority", "definition")

policies = nouns("policies", "Policies and operator policies: list, show, set and delete them.")
policy_argument = click.argument("name", shell_complete=completing("policies"))
operator_option = click.option("--operator", is_flag=True, help="operator policies")


def _kind(operator: bool) -> str:
    return "operator-policies" if operator else "policies"


@policies.verb("ls", "list")
@over_http
@listing
@operator_option
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str], *, operator: bool) -> None:
    """List policies, those of one vhost with --vhost."""
    show_list(remote, _kind(operator), *remote.vhosts, query=query, columns=columns, default=COLUMNS)


@policies.verb("show", "info")
@over_http
@policy_argument
@operator_option
def show(remote: Remote, name: str, *, operator: bool) -> None:
    """Show a policy."""
    remote.printer.record(remote.api.get(_kind(operator), remote.vhost, name))


@policies.verb("set", "declare")
@over_http
@click.argument("name")
@click.argument("pattern")
@click.argument("definition", type=JsonObject())
@click.option("--priority", type=int, default=0, show_default=True, help="the highest one that matches holds")
@click.option("--apply-to", default="all", show_default=True, metavar="KIND", help="queues, exchanges or all")
@operator_option
def set_policy(
    remote: Remote, name: str, pattern: str, definition: Row, *, priority: int, apply_to: str, operator: bool
) -> None:
    """Set a policy: a pattern for names, and a definition such as '{"max-length": 10}'."""
    if operator and apply_to == "all":
        apply_to = "queues"  # operator policies hold for nothing else
    content = {"pattern": pattern, "definition": definition, "priority": priority, "apply-to": apply_to}
    remote.api.put(_kind(operator), remote.vhost, name, content=content)
    remote.printer.said(f"policy '{name}' set")


@policies.verb("delete", "rm", "clear")
@over_http
@policy_argument
@operator_option
def delete(remote: Remote, name: str, *, operator: bool) -> None:
    """Delete a policy."""
    remote.api.delete(_kind(operator), remote.vhost, name)
    remote.printer.said(f"policy '{name}' deleted")
