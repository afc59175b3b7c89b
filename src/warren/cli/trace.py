"""`warren trace`: switch the firehose of a vhost."""

from __future__ import annotations

import click

from warren.cli.grammar import Remote, over_http


@click.command("trace")
@over_http
@click.argument("switch", type=click.Choice(["on", "off"]))
def trace(remote: Remote, switch: str) -> None:
    """Switch the firehose of a vhost on or off.

    While it is on, copies of all that is published and delivered in the vhost go to its exchange
    amq.rabbitmq.trace, under publish.<exchange> and deliver.<queue>. It takes an administrator.
    """
    remote.api.get("vhosts", remote.vhost)  # fails if there is no such vhost: PUT alone would make one
    remote.api.put("vhosts", remote.vhost, content={"tracing": switch == "on"})
    remote.printer.said(f"the firehose of vhost '{remote.vhost}' is {switch}")
