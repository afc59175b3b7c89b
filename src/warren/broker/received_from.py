"""Where a federated message has been: the header `x-received-from`, a list of tables, the newest first.

{"uri": "amqp://there", "exchange": "x", "redelivered": False, "cluster-name": "there", "vhost": "/"}

The brokers that a message has been at, and how many they are, end its way: so no message goes round in
circles. `x-bound-from`, an argument of bindings that federation has made, lists where these came from in the
same way.
"""

from __future__ import annotations

from warren.amqp.table import Table, Value

RECEIVED_FROM = "x-received-from"
BOUND_FROM = "x-bound-from"
CLUSTER_NAME, VHOST = "cluster-name", "vhost"


def stations(table: Table, name: str) -> list[Value]:
    """The list of this name; empty if there is none, or if it is something else that a client has set."""
    found = table.get(name)
    return found if isinstance(found, list) else []


def was_at(visited: list[Value], cluster_name: str, vhost: str) -> bool:
    return any(
        isinstance(station, dict)
        and station.get(CLUSTER_NAME) == cluster_name
        and station.get(VHOST) == vhost
        for station in visited
    )


def may_go_on(headers: Table | None, max_hops: int, cluster_name: str, vhost: str) -> bool:
    """Whether a message with these headers may go on to a vhost of another broker."""
    visited = stations(headers or {}, RECEIVED_FROM)
    return not visited or (len(visited) < max_hops and not was_at(visited, cluster_name, vhost))
