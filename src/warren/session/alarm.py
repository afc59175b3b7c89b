"""While memory or disk runs low, connections that publish are blocked: the broker does not read from them,
and tells those clients that understand connection.blocked.

An alarm alone blocks nobody. A connection goes on getting, acknowledging and consuming until it publishes.
Then the broker stops reading before it takes the message; the message and all frames behind it wait.
"""

from __future__ import annotations

from warren.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from warren.broker import events
from warren.session.roles import Host
from warren.session.state import State


def follow_alarm(connection: Host) -> None:
    """Called when an alarm was raised or cleared, and when the connection was opened."""
    if connection.state is not State.OPEN:
        return
    connection.blocking = bool(connection.node.alarms)
    if connection.blocked and not connection.blocking:
        _unblock(connection)


def block(connection: Host) -> None:
    """Called when the connection publishes during an alarm."""
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
