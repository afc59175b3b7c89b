"""What the model knows of those who use it. Sessions implement it; the model imports no session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, Protocol

from warren.broker.access import User

ClientId = NewType("ClientId", int)
"""The number of a connection. A node uses each number once."""


@dataclass(frozen=True)
class Origin:
    """The channel that a message came from, or goes to, as the firehose tells it."""

    connection: str
    channel: int
    user: str


class Client(Protocol):
    """A connection, as the model sees it. It owns exclusive queues by its id."""

    id: ClientId
    name: str
    user_name: str
    vhost_name: str

    def force_close(self, reason: str) -> None:
        """Close the connection, and tell the peer why."""

    def alarm_changed(self) -> None:
        """An alarm was raised or cleared."""

    def forget_permissions(self) -> None:
        """The user's permissions changed: what was allowed before has to be asked again."""

    def rates_changed(self, user: User) -> None:
        """This user's rate limits changed."""

    def close_late_channels(self, now_ms: int, timeout_ms: int) -> None:
        """Close every channel that has not acknowledged a delivery in time."""
