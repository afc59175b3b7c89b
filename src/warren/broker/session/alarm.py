"""While a resource runs low, connections that publish are blocked: told so, if they understand, and not
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from warren.broker import events
from warren.broker.session.state import State

if TYPE_CHECKING:
    from warren.broker.session.connection import Connection


def follow_alarm(connection: Connection) -> None:
    """An alarm was raised or cleared, or the connection has begun to publish."""
    if connection.state is not State.OPEN:
        return
    alarms = connection.node.alarms
    if alarms and connection.is_publisher and not connection.blocked:
        _block(connection, "low on " + ", ".join(sorted(alarms)))
    elif connection.blocked and not alarms:
        _unblock(connection)


def _block(connection: Connection, reason: str) -> None:
    connection.blocked = True
    if connection.has_capability("connection.blocked"):
        connection.send(ConnectionBlocked(reason=reason))
    connection.stop_reading("alarm")
    connection.node.events.emit(events.ConnectionBlocked(connection.name, reason))


def _unblock(connection: Connection) -> None:
    connection.blocked = False
    if connection.has_capability("connection.blocked"):
        connection.send(ConnectionUnblocked())
    connection.start_reading("alarm")
    connection.node.events.emit(events.ConnectionUnblocked(connection.name))
