"""From the protocol header to connection.open-ok."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

from warren.amqp.errors import (
    AuthenticationRefused,
    CommandInvalid,
    NotAllowed,
)
from warren.amqp.methods import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)
from warren.amqp.table import Table
from warren.broker.access import Access
from warren.broker.events import AuthenticationFailed
from warren.broker.passwords import PasswordHash
from warren.broker.session import sasl
from warren.broker.session.state import State
from warren.version import __version__

if TYPE_CHECKING:
    from warren.broker.session.connection import Connection

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
FRAME_BYTES_MIN = 4096
REFUSAL_DELAY_SECONDS = 1.0

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
# Kombu, and so Celery, chooses how it sets prefetch limits by these two: this is whose rules we follow.
COMPATIBLE_PRODUCT, COMPATIBLE_VERSION = "RabbitMQ", "3.13.7"


def server_properties(cluster_name: str) -> Table:
    return {
        "product": COMPATIBLE_PRODUCT,
        "version": COMPATIBLE_VERSION,
        "platform": f"Python {platform.python_version()}",
        "information": f"WarrenMQ {__version__}, compatible with {COMPATIBLE_PRODUCT} {COMPATIBLE_VERSION}",
        "copyright": "Licensed under the Apache License 2.0",
        "cluster_name": cluster_name,
        "capabilities": dict.fromkeys(CAPABILITIES, True),
    }


class Handshake:
    """Knows for each state which method may come, and what follows from it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.steps: dict[tuple[State, type[Method]], Callable[..., None]] = {
            (State.AWAITING_START_OK, ConnectionStartOk): self._start_ok,
            (State.AWAITING_TUNE_OK, ConnectionTuneOk): self._tune_ok,
            (State.AWAITING_OPEN, ConnectionOpen): self._open,
            (State.OPEN, ConnectionUpdateSecret): self._update_secret,
        }

    def start(self) -> None:
        connection = self.connection
        connection.send(
            ConnectionStart(
                server_properties=server_properties(connection.node.cluster_name),
                mechanisms=b" ".join(name.encode() for name in sasl.MECHANISMS),
            )
        )
        connection.become(State.AWAITING_START_OK)

    def handle(self, method: Method) -> None:
        step = self.steps.get((self.connection.state, type(method)))
        if step is None:
            raise CommandInvalid(f"{method.name} is not due")
        step(method)

    # --- who it is ---

    def _start_ok(self, method: ConnectionStartOk) -> None:
        connection = self.connection
        connection.client_properties = method.client_properties
        self.mechanism = method.mechanism
        read = sasl.MECHANISMS.get(method.mechanism)
        if read is None:
            raise NotAllowed(f"unknown authentication mechanism '{method.mechanism}'")
        user, password = read(method.response)
        connection.user_name = user
        stored = self._stored_password(user)
        if stored is None:
            self._refuse("unknown user, or one without a password")
        elif not connection.is_loopback and user in connection.node.limits.loopback_users:
            self._refuse("this user can only connect via localhost")
        elif connection.node.passwords.knows(user, stored, password):
            self._accept()
        else:
            self._verify(stored, password)

    def _stored_password(self, user: str) -> PasswordHash | None:
        known = self.connection.node.users.get(user)
        return known.password if known is not None else None

    def _verify(self, stored: PasswordHash, password: bytes) -> None:
        """Hashing takes long on purpose: in a thread, while this connection waits and no other does."""
        connection = self.connection
        connection.become(State.AUTHENTICATING)
        connection.suspended = True
        connection.stop_reading("authentication")

        def done(right: bool) -> None:
            if connection.state is not State.AUTHENTICATING:
                return
            if right:
                connection.node.passwords.remember(connection.user_name, stored, password)
                self._accept()
            else:
                self._refuse("wrong password")
            connection.start_reading("authentication")
            connection.resume()
            connection.node.end_turn()

        connection.node.world.in_thread(lambda: stored.verify(password), done)

    def _refuse(self, reason: str) -> None:
        """The client learns no more than that; the log says why."""
        connection = self.connection
        connection.node.events.emit(AuthenticationFailed(connection.name, connection.user_name, reason))
        error = AuthenticationRefused(
            f"Login was refused using authentication mechanism {self.mechanism}. "
            "For details see the broker logfile."
        )
        if connection.has_capability("authentication_failure_close"):
            connection.fail(error, ConnectionStartOk.id)
            return
        connection.close_reason = error.reply_text
        connection.closing = True
        connection.become(State.CLOSING)
        connection.node.world.call_later(REFUSAL_DELAY_SECONDS, lambda: connection.drop(error.reply_text))

    def _accept(self) -> None:
        limits = self.connection.node.limits
        self.connection.send(
            ConnectionTune(
                channel_max=limits.channel_max,
                frame_max=limits.frame_max,
                heartbeat=limits.heartbeat_seconds,
            )
        )
        self.connection.become(State.AWAITING_TUNE_OK)

    # --- how, and where to ---

    def _tune_ok(self, method: ConnectionTuneOk) -> None:
        connection, limits = self.connection, self.connection.node.limits
        _negotiate("frame_max", method.frame_max, FRAME_BYTES_MIN, limits.frame_max)
        _negotiate("channel_max", method.channel_max, 1, limits.channel_max)
        connection.frame_max = connection.output.frame_max = method.frame_max or limits.frame_max
        connection.channel_max = method.channel_max or limits.channel_max
        connection.liveness.interval_seconds = method.heartbeat
        connection.become(State.AWAITING_OPEN)

    def _open(self, method: ConnectionOpen) -> None:
        connection = self.connection
        name, user = method.virtual_host, connection.node.users.get(connection.user_name)
        vhost = connection.node.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        if user is None or name not in user.permissions:
            raise NotAllowed(f"access to vhost '{name}' refused for user '{connection.user_name}'")
        connection.opened(vhost, Access(user, name))
        connection.send(ConnectionOpenOk())

    def _update_secret(self, method: ConnectionUpdateSecret) -> None:
        """For tokens that expire. A password does not, so that there is nothing to renew."""
        self.connection.send(ConnectionUpdateSecretOk())


def _negotiate(name: str, wanted: int, least: int, most: int) -> None:
    """A client may ask for less than was offered; 0 asks for no limit, which is more."""
    if wanted and wanted < least:
        raise NotAllowed(f"negotiated {name} = {wanted} is lower than the minimum allowed value ({least})")
    if most and (wanted == 0 or wanted > most):
        asked = wanted or "0 (no limit)"
        raise NotAllowed(f"negotiated {name} = {asked} is higher than the maximum allowed value ({most})")
