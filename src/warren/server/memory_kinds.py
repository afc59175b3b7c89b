"""What the used memory is used for: shown by the memory alarm, the HTTP API and the metrics."""

from __future__ import annotations

from warren.broker.node import Node
from warren.server.memory import MemoryUse
from warren.session.connection import connections_of
from warren.storage.disk import allocated_bytes


def kinds_of(node: Node, use: MemoryUse) -> dict[str, int]:
    """Bytes by kind; together they are all used memory. `messages_other` are messages neither ready nor
    packed, as a rule delivered and not acked yet. `other` has definitions and all other small objects.
    """
    connections = connections_of(node)
    kinds = {
        "messages_ready": node.memory.ready_bytes(),
        "messages_packed": node.memory.used_bytes,
        "connection_readers": sum(connection.deferred_bytes for connection in connections),
        "connection_writers": sum(
            connection.output.pending_bytes + connection.link.unsent_bytes() for connection in connections
        ),
        "storage": allocated_bytes(),
    }
    kinds["messages_other"] = max(0, use.message_bytes() - sum(kinds.values()))
    kinds["code"] = use.code_bytes
    kinds["other"] = max(0, use.used_bytes() - sum(kinds.values()))
    return kinds
