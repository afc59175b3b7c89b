"""The handshake, from the protocol header to connection.open-ok. `STEPS` says which method is due when.

`warren perf churn connections` watches this.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

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
from warren.broker.access import Access, User
from warren.broker.limits import is_reached
from warren.broker.login import Credentials, Identity, Outcome
from warren.broker.login_attempts import AMQP
from warren.broker.vhost import Vhost
from warren.session import sasl
from warren.session.roles import Host
from warren.session.state import State
from warren.version import __version__

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
FRAME_BYTES_MIN = 4096
REFUSAL_DELAY_SECONDS = 1.0
AUTHENTICATION = "authentication"  # a reason not to read

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
# Kombu, and so Celery, chooses by these two how to set prefetch limits. We follow this product's rules.
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


def start(connection: Host) -> None:
    """The client has sent the protocol header."""
    connection.send(
        ConnectionStart(
            server_properties=server_properties(connection.node.cluster_name),
            mechanisms=" ".join(offered_mechanisms(connection)).encode(),
        )
    )
    connection.become(State.AWAITING_START_OK)


def handle(connection: Host, method: Method) -> None:
    """Take the step that this method stands for in the connection's state; 503 if there is none."""
    step = STEPS.get((connection.state, type(method)))
    if step is None:
        raise CommandInvalid(f"{method.name} is not due")
    step(connection, method)


# --- authentication ---


def offered_mechanisms(connection: Host) -> list[str]:
    """EXTERNAL is for clients whose certificate names a user."""
    return [*sasl.MECHANISMS, *([sasl.EXTERNAL] if connection.peer.certified_user else [])]


def start_ok(connection: Host, method: ConnectionStartOk) -> None:
    """Have the client's credentials checked. Meanwhile only this connection waits, and it is not read."""
    connection.client_properties = method.client_properties
    connection.mechanism = method.mechanism
    if method.mechanism not in offered_mechanisms(connection):
        raise NotAllowed(f"unknown authentication mechanism '{method.mechanism}'")
    password: bytes | None = None
    if method.mechanism == sasl.EXTERNAL:
        connection.user_name = connection.peer.certified_user
    else:
        connection.user_name, password = sasl.MECHANISMS[method.mechanism](method.response)
    connection.become(State.AUTHENTICATING)
    if connection.peer.user is not None:
        logged_in(connection, method.mechanism, Identity(connection.peer.user))
        return
    connection.node.logins.attempt(
        credentials_of(connection, method.mechanism, password),
        lambda outcome: logged_in(connection, method.mechanism, outcome),
        lambda: connection.state is State.AUTHENTICATING,
    )
    if connection.state is State.AUTHENTICATING:
        connection.suspended = True
        connection.stop_reading(AUTHENTICATION)


def credentials_of(connection: Host, mechanism: str, secret: bytes | None) -> Credentials:
    return Credentials(
        protocol=AMQP,
        mechanism=mechanism,
        user=connection.user_name,
        secret=secret,
        address=connection.peer.host,
        is_loopback=connection.peer.is_loopback,
        source=connection.name,
    )


def logged_in(connection: Host, mechanism: str, outcome: Outcome) -> None:
    if connection.state is not State.AUTHENTICATING:
        return
    has_waited = AUTHENTICATION in connection.not_reading_because
    if isinstance(outcome, Identity):
        connection.identity = outcome
        connection.user_name = outcome.user.name
        accept(connection)
    else:
        refuse(connection, mechanism)
    if has_waited:
        connection.start_reading(AUTHENTICATION)
        connection.resume()
        connection.node.end_turn()


def refuse(connection: Host, mechanism: str) -> None:
    """Refuse the login. The client is not told why; the log was."""
    error = AuthenticationRefused(
        f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
    )
    if connection.has_capability("authentication_failure_close"):
        connection.fail(error, ConnectionStartOk.id)
        return
    connection.close_reason = error.reply_text
    connection.closing = True
    connection.become(State.CLOSING)
    connection.node.world.call_later(REFUSAL_DELAY_SECONDS, lambda: connection.drop(error.reply_text))


def accept(connection: Host) -> None:
    limits = connection.node.limits
    connection.send(
        ConnectionTune(
            channel_max=limits.channel_max, frame_max=limits.frame_max, heartbeat=limits.heartbeat_seconds
        )
    )
    connection.become(State.AWAITING_TUNE_OK)


# --- tuning, and the vhost ---


def tune_ok(connection: Host, method: ConnectionTuneOk) -> None:
    limits = connection.node.limits
    _negotiate("frame_max", method.frame_max, FRAME_BYTES_MIN, limits.frame_max)
    _negotiate("channel_max", method.channel_max, 1, limits.channel_max)
    connection.frame_max = connection.output.frame_max = method.frame_max
    connection.channel_max = method.channel_max
    connection.liveness.interval_seconds = method.heartbeat
    connection.become(State.AWAITING_OPEN)


def open_vhost(connection: Host, method: ConnectionOpen) -> None:
    name, user = method.virtual_host, connection.identity.user
    vhost = connection.node.vhosts.get(name)
    if vhost is None:
        raise NotAllowed(f"vhost {name} not found")
    if not user.may_enter(name):
        raise NotAllowed(f"access to vhost '{name}' refused for user '{user.name}'")
    limit = connection.node.limits.connections_max
    if is_reached(limit, len(connection.node.clients) - 1):  # without this one
        raise NotAllowed(f"connection refused: node connection limit ({limit}) is reached")
    _check_limits(vhost, user)
    connection.opened(vhost, Access(user, name))
    connection.send(ConnectionOpenOk())


def _check_limits(vhost: Vhost, user: User) -> None:
    limit = vhost.limits.max_connections
    if is_reached(limit, vhost.connections):
        raise NotAllowed(
            f"access to vhost '{vhost.name}' refused for user '{user.name}': "
            f"connection limit ({limit}) is reached"
        )
    limit = user.limits.max_connections
    if is_reached(limit, user.connections):
        raise NotAllowed(
            f"connection refused for user '{user.name}': user connection limit ({limit}) is reached"
        )


def update_secret(connection: Host, method: ConnectionUpdateSecret) -> None:
    """Take a new token in place of one that expires. The node's own users have none: nothing to do."""
    if connection.identity.user is connection.node.users.get(connection.user_name):
        connection.send(ConnectionUpdateSecretOk())
        return
    connection.node.logins.attempt(
        credentials_of(connection, "PLAIN", method.new_secret),
        lambda outcome: secret_updated(connection, outcome),
        lambda: connection.state is State.OPEN,
    )


def secret_updated(connection: Host, outcome: Outcome) -> None:
    if connection.state is not State.OPEN:
        return
    if isinstance(outcome, Identity) and outcome.user.name == connection.user_name:
        connection.renew(outcome)
        connection.send(ConnectionUpdateSecretOk())
    else:
        connection.fail(
            NotAllowed("New secret was refused by one of the backends"), ConnectionUpdateSecret.id
        )
    connection.node.end_turn()


STEPS: dict[tuple[State, type[Method]], Callable[[Host, Any], None]] = {
    (State.AWAITING_START_OK, ConnectionStartOk): start_ok,
    (State.AWAITING_TUNE_OK, ConnectionTuneOk): tune_ok,
    (State.AWAITING_OPEN, ConnectionOpen): open_vhost,
    (State.OPEN, ConnectionUpdateSecret): update_secret,
}


def _negotiate(name: str, wanted: int, least: int, most: int) -> None:
    """Check what a client has chosen: it may lower the limit that we offered, and 0 means no limit."""
    if wanted and wanted < least:
        raise NotAllowed(f"negotiated {name} = {wanted} is lower than the minimum allowed value ({least})")
    if wanted == 0 or wanted > most:
        asked = wanted or "0 (no limit)"
        raise NotAllowed(f"negotiated {name} = {asked} is higher than the maximum allowed value ({most})")
