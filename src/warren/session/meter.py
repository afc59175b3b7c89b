"""Keeps a connection within its user's rate limits. Messages above the rate wait; none is lost or refused.

Each read and each write is charged to the user's allowance, which answers how long it takes until that is
paid. Until then, a connection that published too much is not read. One that was sent too much gets no
deliveries and, if it has no consumers and so takes messages by basic.get, is not read either.

Only connections of users with rate limits have a meter. It is called once a read and once a write, never once
a message.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.rate import Allowance
from warren.session.roles import Host
from warren.session.state import State

PUBLISHING, CONSUMING = "publish rate", "consume rate"


class Meter:
    """A read or write is charged after it has happened, so its size is limited for the rates to hold."""

    def __init__(self, connection: Host, publishing: Allowance | None, consuming: Allowance | None) -> None:
        self.connection = connection
        self.publishing = publishing  # the user's allowances, shared with the user's other connections
        self.consuming = consuming
        self.published_total = connection.published_total()  # the totals that are charged so far
        self.received_bytes = connection.received_bytes
        self.delivered_total = connection.delivered_total()
        self.paid_at: dict[str, float] = {}  # when publishing and consuming may go on
        connection.read_bytes_max = 0 if publishing is None else publishing.bytes_at_once
        connection.output.limit_turn(0 if consuming is None else consuming.bytes_at_once)

    def charge_published(self) -> None:
        """Charge a read that brought messages, and stop reading if that was too much."""
        connection = self.connection
        if self.publishing is None or connection.state is not State.OPEN:
            return
        published, received = connection.published_total(), connection.received_bytes
        messages, octets = published - self.published_total, received - self.received_bytes
        self.published_total, self.received_bytes = published, received
        wait_seconds = self.publishing.charge(messages, octets, connection.node.world.now())
        if wait_seconds:
            connection.stop_reading(PUBLISHING)
            self._call_later(wait_seconds, PUBLISHING, self._go_on_publishing)

    def charge_sent(self, octets: int) -> None:
        """Charge a write, if there were messages in it, and stop deliveries if that was too much."""
        connection = self.connection
        if self.consuming is None or connection.state is not State.OPEN:
            return
        delivered = connection.delivered_total()
        messages = delivered - self.delivered_total
        self.delivered_total = delivered
        if not messages:
            return
        wait_seconds = self.consuming.charge(messages, octets, connection.node.world.now())
        if wait_seconds:
            self._stop_consuming()
            self._call_later(wait_seconds, CONSUMING, self._go_on_consuming)

    def end(self) -> None:
        """The user's limits have changed: let the connection go on, with another meter or none."""
        self.connection.meter = None
        self.connection.read_bytes_max = 0
        self.connection.output.limit_turn(0)
        self._go_on_publishing()
        self._go_on_consuming()

    def _call_later(self, seconds: float, what: str, go_on: Callable[[], None]) -> None:
        """Go on when the debt is paid, unless more was charged meanwhile, or this meter has ended."""
        paid_at = self.paid_at[what] = self.connection.node.world.now() + seconds

        def is_paid() -> None:
            if self.connection.meter is self and self.paid_at[what] == paid_at:
                go_on()

        self.connection.node.world.call_later(seconds, is_paid)

    def _go_on_publishing(self) -> None:
        self.connection.start_reading(PUBLISHING)

    def _stop_consuming(self) -> None:
        connection = self.connection
        connection.stop_delivering(CONSUMING)
        if not any(channel.consumers for channel in connection.open_channels()):
            connection.stop_reading(CONSUMING)

    def _go_on_consuming(self) -> None:
        self.connection.start_reading(CONSUMING)
        if CONSUMING in self.connection.not_delivering_because:
            self.connection.start_delivering(CONSUMING)
