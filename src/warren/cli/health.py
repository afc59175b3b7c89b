"""`warren health`: the checks of the HTTP API, and `warren status` and `warren whoami`."""

from __future__ import annotations

import click

from warren.cli.grammar import Failed, Remote, over_http
from warren.cli.product import product_of
from warren.client.api import NOT_FOUND, Api, ApiError, Row

CHECKS = ("alarms", "local-alarms", "virtual-hosts")
FAILED_STATUS = 503
NOT_ALLOWED = {401, 403}


@click.command("health")
@over_http
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
def health(remote: Remote, checks: tuple[str, ...]) -> None:
    """Run health checks: alarms, local-alarms and virtual-hosts, or those that are named, such as
    port-listener/5672, protocol-listener/amqp or certificate-expiration/1/months.
    """
    rows = [_result(remote, check) for check in checks or CHECKS]
    remote.printer.table([rows], ("check", "status", "reason"))
    failed = [row["check"] for row in rows if row["status"] != "ok"]
    if failed:
        raise Failed(f"failed: {', '.join(failed)}")


def _result(remote: Remote, check: str) -> Row:
    try:
        remote.api.get("health", "checks", *check.split("/"))
    except ApiError as error:
        if error.status == NOT_FOUND:
            raise Failed(f"there is no health check '{check}'") from error
        if error.status != FAILED_STATUS:
            raise
        return {"check": check, "status": "failed", "reason": str(error)}
    return {"check": check, "status": "ok", "reason": ""}


@click.command("status")
@over_http
def status(remote: Remote) -> None:
    """Show the broker at a glance."""
    overview = remote.api.get("overview")
    nodes = nodes_of(remote.api)
    if remote.printer.as_json:
        remote.printer.json({"overview": overview, "nodes": nodes})
        return
    remote.printer.record(summary(overview, nodes))


def nodes_of(api: Api) -> list[Row]:
    """The nodes; none if the user may not see them, which takes the tag monitoring."""
    try:
        nodes: list[Row] = api.get("nodes")
    except ApiError as error:
        if error.status not in NOT_ALLOWED:
            raise
        return []
    return nodes


def summary(overview: Row, nodes: list[Row]) -> Row:
    row: Row = {"product": product_of(overview), "cluster_name": overview.get("cluster_name")}
    row |= overview.get("object_totals", {}) | overview.get("queue_totals", {})
    listeners = overview.get("listeners", [])
    row["listeners"] = " ".join(f"{each['protocol']}:{each['port']}" for each in listeners)
    asked = overview.get("node")  # in a cluster there are others, of which it knows less
    for node in [each for each in nodes if each.get("name") == asked] or nodes:
        row |= {
            "node": node.get("name"),
            "uptime_seconds": node.get("uptime", 0) // 1000,
            "memory_bytes": node.get("mem_used"),
            "disk_free_bytes": node.get("disk_free"),
            "alarms": ", ".join(alarms_of(node)) or "none",
        }
    return {name: value for name, value in row.items() if not isinstance(value, dict)}


def alarms_of(node: Row) -> list[str]:
    return [text for text, field in (("memory", "mem_alarm"), ("disk", "disk_free_alarm")) if node.get(field)]


@click.command("whoami")
@over_http
def whoami(remote: Remote) -> None:
    """Show the user that the commands log in as."""
    remote.printer.record(remote.api.get("whoami"))
