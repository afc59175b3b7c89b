"""What the model knows of its clients. Sessions implement these protocols; the model imports no session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NewType, Protocol

from warren.broker.access import User
from warren.broker.safety import Safety

ClientId = NewType("ClientId", int)
"""The number of a connection. A node uses each number once."""


@dataclass(frozen=True)
class Origin:
    """The channel that a message came from, or goes to; the firehose names it in its copies."""

    connection: str
    channel: int
    user: str


class Client(Protocol):
    """A connection, as the model sees it. An exclusive queue has the `id` of its connection as its owner."""

    id: ClientId
    name: str
    user_name: str
    vhost_name: str

    def stop_listening(self) -> None:
        """Take nothing more from the client: `force_close` follows, perhaps some turns later."""

    def force_close(self, reason: str) -> None:
        """Close the connection, and tell the peer why."""

    def alarm_changed(self) -> None:
        """An alarm was raised or cleared."""

    def forget_permissions(self) -> None:
        """The user's permissions changed: forget remembered decisions."""

    def rates_changed(self, user: User) -> None:
        """This user's rate limits changed."""

    def safety_ended(self, safety: Safety, reason: str) -> None:
        """Nobody will say whether what waits for this safety is safe, or not soon: close the channels that
        do, for this reason.
        """

    def close_late_channels(self, now_ms: int, timeout_ms: int) -> Iterator[int]:
        """Close every channel that has not acknowledged a delivery in time, step by step; yield the cost of
        each step.
        """
