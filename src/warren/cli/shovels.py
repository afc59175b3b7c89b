"""`warren shovels`. Options of `declare` are the keys of RabbitMQ's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from warren.cli.grammar import Failed, Remote, completing, listing, nouns, over_http, show_list
from warren.cli.uris import filled_in
from warren.cli.values import JsonObject

COMPONENT = "shovel"
COLUMNS = ("name", "type", "state", "src_uri", "src_queue", "dest_uri", "dest_queue", "forwarded", "reason")
ACK_MODES = ("on-confirm", "on-publish", "no-ack")
shovel_argument = click.argument("shovel", metavar="SHOVEL", shell_complete=completing("shovels"))

shovels = nouns("shovels", "Shovels: list, show, declare, delete and restart them.")


@shovels.verb("ls", "list")
@over_http
@listing
def ls(remote: Remote, columns: tuple[str, ...], query: dict[str, str]) -> None:
    """List shovels and how they do, those of one vhost with --vhost."""
    default = COLUMNS if remote.vhosts else ("vhost", *COLUMNS)
    show_list(remote, "shovels", *remote.vhosts, query=query, columns=columns, default=default)


@shovels.verb("show", "info")
@over_http
@shovel_argument
def show(remote: Remote, shovel: str) -> None:
    """Show all that is known of a shovel."""
    for page in remote.api.pages("shovels", remote.vhost):  # RabbitMQ tells little when asked for one
        for row in page:
            if row["name"] == shovel:
                remote.printer.record(row)
                return
    raise Failed(f"no shovel '{shovel}' in vhost '{remote.vhost}'")


def _definition(command: Callable[..., None]) -> Callable[..., None]:
    """The options that describe a shovel."""
    args: dict[str, Any] = {"type": JsonObject(), "metavar": "JSON"}
    for option in (
        click.option("--src-uri", multiple=True, metavar="URI", help="where from; several: tried in turn"),
        click.option("--src-queue", metavar="NAME", help="consume this queue"),
        click.option("--src-exchange", metavar="NAME", help="or what a queue bound to this exchange gets"),
        click.option("--src-exchange-key", metavar="KEY", help="the key of that binding"),
        click.option("--src-queue-args", **args, help="arguments, if the queue has to be declared"),
        click.option("--src-predeclared", is_flag=True, default=None, help="wait for it, declare none"),
        click.option("--src-consumer-args", **args, help="of the consumer, such as x-stream-offset"),
        click.option("--src-prefetch-count", type=int, help="messages that may be on their way (1000)"),
        click.option("--src-delete-after", metavar="WHEN", help="never, queue-length, or so many messages"),
        click.option("--dest-uri", multiple=True, metavar="URI", help="where to; several: tried in turn"),
        click.option("--dest-queue", metavar="NAME", help="publish to this queue"),
        click.option("--dest-exchange", metavar="NAME", help="or to this exchange, not each message's own"),
        click.option("--dest-exchange-key", metavar="KEY", help="under this key, not each message's own"),
        click.option("--dest-queue-args", **args, help="arguments, if the queue has to be declared"),
        click.option("--dest-predeclared", is_flag=True, default=None, help="wait for it, declare none"),
        click.option("--dest-publish-properties", **args, help="properties to set in each message"),
        click.option("--dest-add-forward-headers", is_flag=True, default=None, help="add x-shovelled"),
        click.option("--dest-add-timestamp-header", is_flag=True, default=None, help="add the time"),
        click.option("--ack-mode", type=click.Choice(ACK_MODES), help="when the source may forget a message"),
        click.option("--reconnect-delay", type=float, help="seconds at most between attempts; 0: one only"),
    ):
        command = option(command)
    return command


@shovels.verb("declare", "add")
@over_http
@click.argument("shovel", metavar="SHOVEL")
@_definition
def declare(remote: Remote, shovel: str, **options: Any) -> None:
    """Make a shovel, or change it. A URI that is not given, or has no host (amqp://), is the broker that the
    shovel runs in. In URIs, ${NAME} is a variable of the environment, so that no password is among the
    arguments.
    """
    value: dict[str, object] = {
        name.replace("_", "-"): given for name, given in options.items() if given is not None
    }
    for name in ("src-uri", "dest-uri"):
        uris = [filled_in(uri) for uri in options[name.replace("-", "_")]]
        value[name] = uris[0] if len(uris) == 1 else uris or _here(remote.vhost)
    after = options["src_delete_after"]
    if after is not None and after.isdecimal():
        value["src-delete-after"] = int(after)
    content = {"component": COMPONENT, "vhost": remote.vhost, "name": shovel, "value": value}
    remote.api.put("parameters", COMPONENT, remote.vhost, shovel, content=content)
    remote.printer.said(f"shovel '{shovel}' declared")


def _here(vhost: str) -> str:
    """The URI of the broker that the shovel runs in, and of its own vhost there."""
    return "amqp://" if vhost == "/" else f"amqp:///{quote(vhost, safe='')}"


@shovels.verb("delete", "rm")
@over_http
@shovel_argument
def delete(remote: Remote, shovel: str) -> None:
    """Delete a shovel."""
    remote.api.delete("shovels", "vhost", remote.vhost, shovel)
    remote.printer.said(f"shovel '{shovel}' deleted")


@shovels.verb("restart")
@over_http
@shovel_argument
def restart(remote: Remote, shovel: str) -> None:
    """End a shovel, and start it anew."""
    remote.api.delete("shovels", "vhost", remote.vhost, shovel, "restart")
    remote.printer.said(f"shovel '{shovel}' restarted")
