"""`warren cluster`: what a cluster is doing, having a node lead nothing, and a cluster to try."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

import click

from warren.cli.grammar import Failed, Remote, completing, nouns, over_http
from warren.cli.numbers import Seconds, Whole
from warren.cli.product import ours_alone
from warren.client.api import Row
from warren.client.uri import PORT_DEFAULT

NODE_COLUMNS = (
    "name",
    "running",
    "state",
    "leads",
    "keeps",
    "in_sync",
    "amqp_address",
    "http_address",
    "version",
)
SHARD_COLUMNS = (
    "number",
    "leader",
    "epoch",
    "replicas",
    "in_sync",
    "joining",
    "leaving",
    "role",
    "followers",
    "is_older_in_etcd",
)
FORCED_COLUMNS = ("node", "epoch", "were_in_sync", "queues")
LISTS = ("replicas", "in_sync", "joining", "leaving")
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.2
NODES_MIN, NODES_MAX = 3, 9  # with fewer than three, none could be spared
HTTP_PORT_DEFAULT = 15672
PORT_MAX = 65_535 - NODES_MAX

cluster = nouns("cluster", "A cluster: its nodes and shards, draining a node, moving a shard; a demo.")


@cluster.verb("status")
@over_http
def status(remote: Remote) -> None:
    """Show the nodes of the cluster as the broker that is asked knows them: how many shards each of them
    leads, keeps, and has in sync.
    """
    nodes: list[Row] = remote.api.get("nodes", query={"columns": ",".join(NODE_COLUMNS)})
    _check_clustered(nodes)
    remote.printer.table([nodes], NODE_COLUMNS)


@cluster.verb("shards")
@over_http
def shards(remote: Remote) -> None:
    """Show the shards of the cluster: who leads them, who has all that is confirmed, and what followers of
    the broker that is asked lack.
    """
    found = shards_of(remote)
    remote.printer.table([found if remote.printer.as_json else list(map(shown, found))], SHARD_COLUMNS)


def shards_of(remote: Remote) -> list[Row]:
    with ours_alone(remote):
        found: list[Row] = remote.api.get("cluster", "shards")
    return found


def shown(shard: Row) -> Row:
    """A shard as a row of a table."""
    lists = {name: " ".join(shard[name]) for name in LISTS}
    return shard | lists | {"followers": ", ".join(map(_follower, shard["followers"]))}


def _follower(told: Row) -> str:
    if not told["is_in_step"]:
        return f"{told['node']} is not in step"
    waiting = told["bytes_in_flight"]
    return f"{told['node']} lacks {waiting} bytes" if waiting else f"{told['node']} in step"


def _check_clustered(nodes: list[Row]) -> None:
    if not any("leads" in node for node in nodes):
        raise Failed("this broker is not in a cluster")


@cluster.verb("drain")
@over_http
@click.option("--wait", type=Seconds(), default=WAIT_SECONDS, help="how long to wait until it is done (60)")
def drain(remote: Remote, *, wait: float) -> None:
    """Have the broker that is asked hand over all shards that it leads, and lead none until `undrain` or its
    next start. Returns when it leads none.
    """
    with ours_alone(remote):
        remote.api.put("cluster", "drain", content={})
    _until(lambda: _leads_nothing(remote), wait, "it leads shards still: no other node could take them")
    remote.printer.said("it leads no shard now")


def _leads_nothing(remote: Remote) -> bool:
    return all(shard["role"] in {"follower", "outsider"} for shard in shards_of(remote))


@cluster.verb("undrain")
@over_http
def undrain(remote: Remote) -> None:
    """Let the broker that is asked lead shards again."""
    with ours_alone(remote):
        remote.api.delete("cluster", "drain")
    remote.printer.said("it may lead again")


@cluster.verb("move")
@over_http
@click.argument("shard", type=Whole())
@click.argument("node", shell_complete=completing("nodes"))
@click.option("--wait", type=Seconds(), default=WAIT_SECONDS, help="how long to wait until it is done (60)")
def move(remote: Remote, *, shard: int, node: str, wait: float) -> None:
    """Hand the leadership of SHARD to NODE, which has to be in sync. The broker that is asked has to lead the
    shard. It stays there, unless that node leads much more than others then.
    """
    with ours_alone(remote):
        remote.api.put("cluster", "shards", str(shard), "leader", content={"node": node})
    _until(lambda: _leader_of(remote, shard) == node, wait, f"node '{node}' does not lead shard {shard}")
    remote.printer.said(f"node '{node}' leads shard {shard}")


def _leader_of(remote: Remote, shard: int) -> str | None:
    return next((each["leader"] for each in shards_of(remote) if each["number"] == shard), None)


@cluster.verb("force-leader")
@over_http
@click.argument("shard", type=Whole())
@click.argument("node", shell_complete=completing("nodes"))
@click.option("--accept-data-loss", is_flag=True, help="what was confirmed and NODE lacks is lost")
@click.option("--wait", type=Seconds(), default=WAIT_SECONDS, help="how long to wait until it is done (60)")
def force_leader(remote: Remote, *, shard: int, node: str, accept_data_loss: bool, wait: float) -> None:
    """Have NODE, which is the broker that is asked, lead SHARD although it is not in sync: if all nodes that
    are will never come back. NODE goes on with what it has. What was confirmed, and only the others had, is
    lost.
    """
    if not accept_data_loss:
        raise Failed(
            "what was confirmed may be lost: say --accept-data-loss, if no node that has it comes back"
        )
    content = {"node": node, "accept_data_loss": True}
    with ours_alone(remote):
        forced: Row = remote.api.post("cluster", "shards", str(shard), "forced-leader", content=content)
    _until(lambda: _role_in(remote, shard) == "open", wait, f"node '{node}' does not serve shard {shard} yet")
    were = " ".join(forced["were_in_sync"])
    row = forced if remote.printer.as_json else forced | {"were_in_sync": were}
    remote.printer.table([[row]], FORCED_COLUMNS)
    remote.printer.said(f"what was confirmed, and only {were} had, is lost")


def _role_in(remote: Remote, shard: int) -> str | None:
    """What the broker that is asked is in a shard."""
    return next((each["role"] for each in shards_of(remote) if each["number"] == shard), None)


def _until(is_so: Callable[[], bool], seconds: float, else_say: str) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= deadline:
            raise Failed(else_say)
        time.sleep(LOOK_SECONDS)


@cluster.verb("remove")
@over_http
@click.argument("node", shell_complete=completing("nodes"))
def remove(remote: Remote, *, node: str) -> None:
    """Have NODE keep nothing, such as one that never comes back. Other nodes get copies of all that it keeps,
    if they have room: `shards` shows how that goes. A node that starts again is in the cluster again.
    """
    with ours_alone(remote):
        remote.api.delete("cluster", "nodes", node)
    remote.printer.said(f"node '{node}' is to keep nothing")


@cluster.command("demo")
@click.option("--nodes", type=Whole(NODES_MIN, NODES_MAX), default=NODES_MIN, help="how many brokers (3)")
@click.option("--dir", "directory", metavar="DIR", help="keep their data here (a directory that is removed)")
@click.option(
    "--port",
    type=Whole(0, PORT_MAX),
    default=PORT_DEFAULT,
    help="of the first broker's AMQP; 0: free ones (5672)",
)
@click.option(
    "--http-port",
    type=Whole(0, PORT_MAX),
    default=HTTP_PORT_DEFAULT,
    help="of the first broker's HTTP API; 0: free ones (15672)",
)
def demo(*, nodes: int, directory: str | None, port: int, http_port: int) -> int:
    """Run a cluster on this machine, with an etcd of its own, and show its log. Commands on the standard
    input stop, kill, pause and start brokers; `help` tells them. Ctrl-C ends everything.
    """
    run = import_module("warren.cli.cluster_demo.demo").run_demo
    code: int = run(nodes=nodes, directory=directory, port=port, http_port=http_port)
    return code
