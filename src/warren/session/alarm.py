"""While a resource runs low, whoever publishes is blocked: told so, if they understand, and not read.

An alarm alone blocks nobody. A connection goes on getting, acknowledging and consuming until it publishes:
then it is stopped before its message is taken, and all that it sent behind that waits with it.
"""

from __future__ import annotations

from warren.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from warren.broker import events
from warren.session.roles import Host
from warren.session.state import State


def follow_alarm(connection: Host) -> None:
    """An alarm was raised or cleared, or the connection was opened."""
    if connection.state is not State.OPEN:
        return
    connection.blocking = bool(connection.node.alarms)
    if connection.blocked and not connection.blocking:
        _unblock(connection)


def block(connection: Host) -> None:
    """The connection publishes during an alarm."""
    connection.blocked = True
    reason = "low on " + ", ".join(sorted(connection.node.alarms))
    if connection.has_capability("connection.blocked"):
        connection.send(ConnectionBlocked(reason=reason))
    connection.halt("alarm")
    connection.node.events.emit(events.ConnectionBlocked(connection.name, reason))


def _unblock(connection: Host) -> None:
    connection.blocked = False
    if connection.has_capability("connection.blocked"):
        connection.send(ConnectionUnblocked())
    connection.start_reading("alarm")
    connection.node.events.emit(events.ConnectionUnblocked(connection.name))
