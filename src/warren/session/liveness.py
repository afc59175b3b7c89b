"""Heartbeats and deadlines: a client that stays silent for too long loses its connection."""

from __future__ import annotations

from warren.session.roles import Host
from warren.session.state import State

HANDSHAKE_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 10.0
INTERVALS_MISSED_MAX = 3
CLIENTS_FAULT = {"output"}
"""A connection that we do not read cannot be heard, which is no fault of its client; except for these reasons
not to read, which are."""


class Liveness:
    """`check` is called about twice a second. Any traffic counts as a heartbeat, both ways."""

    def __init__(self, now: float) -> None:
        self.started_at = self.heard_at = self.sent_at = now
        self.heard_bytes = 0  # how many bytes had been received at the last check
        self.closing_since: float | None = None  # when the broker sent connection.close
        self.interval_seconds = 0  # as negotiated; 0 for no heartbeats

    def check(self, connection: Host, now: float) -> None:
        if connection.received_bytes != self.heard_bytes or connection.not_reading_because - CLIENTS_FAULT:
            self.heard_bytes = connection.received_bytes
            self.heard_at = now
        if connection.state is State.CLOSING:
            self.closing_since = self.closing_since or now
            if now - self.closing_since > CLOSE_SECONDS_MAX:
                connection.give_up(connection.close_reason)
        elif connection.state is not State.OPEN:
            if now - self.started_at > HANDSHAKE_SECONDS_MAX:
                connection.drop("handshake timed out")
        elif self.interval_seconds:
            self._check_heartbeats(connection, now)

    def _check_heartbeats(self, connection: Host, now: float) -> None:
        if now - self.heard_at > self.interval_seconds * INTERVALS_MISSED_MAX:
            connection.give_up("missed heartbeats from client")
        elif now - self.sent_at >= self.interval_seconds / 2:
            connection.output.heartbeat()
