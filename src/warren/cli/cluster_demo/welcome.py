"""What the demo tells its user when all brokers are ready, and what it answers to `help`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from warren.cli.cluster_demo.child import Child

HELP = Text(
    """
  kill a     end node a at once, as by kill -9; others lead its queues after a moment
  stop a     stop it as systemd does; it hands over first
  start a    start it again; it gets what it has missed
  pause a    let it hang, as by SIGSTOP; resume a lets it go on
  status     what runs, and who leads how much
  quit       end everything, as Ctrl-C does
"""
)


def welcome(children: Sequence[Child], shards: int) -> Text:
    first, second = children[0], children[1]
    places = "\n".join(f"  node {child.name}   {child.amqp_url}   {child.http_url}" for child in children)
    return Text.assemble(
        "\n",
        (f"The cluster is ready: {len(children)} brokers and {shards} shards of queues. ", "bold green"),
        "Every durable queue is kept by three brokers.\n",
        f"{places}\n\n",
        ("Try this in another terminal\n", "bold"),
        f"  export WARREN_URL={first.http_url}\n",
        "  warren queues declare orders\n",
        "  warren publish orders hello --property delivery_mode=2\n",
        "  warren queues ls name leader members messages\n",
        ("then type here\n", "bold"),
        f"  kill {first.name}\n",
        ("and there, where this log says that the queue is then\n", "bold"),
        f"  warren get orders --url {second.http_url}\n",
        HELP,
    )
