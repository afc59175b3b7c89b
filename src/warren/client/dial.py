"""A socket to a broker, and what all our clients do with a method that they did not ask for."""

from __future__ import annotations

import socket

from warren.amqp.errors import AmqpError
from warren.amqp.methods import (
    ChannelClose,
    ChannelCloseOk,
    ConnectionClose,
    ConnectionCloseOk,
    Method,
    decode_method,
)
from warren.client.errors import ClientError, ClosedByBrokerError, OutageError
from warren.client.frames import method_frame
from warren.client.tls_socket import encrypt
from warren.client.uri import Uri, UriTls

CONNECT_SECONDS_MAX = 10


def dial(uri: Uri, *, send_buffer_bytes: int | None = None) -> socket.socket:
    """Connect; return a socket that does not block. The kernel buffers `send_buffer_bytes` for it."""
    try:
        limit_s = uri.tuning.connect_seconds or CONNECT_SECONDS_MAX
        made = socket.create_connection((uri.host, uri.port), timeout=limit_s)
    except OSError as error:
        raise OutageError(f"cannot connect to {uri.address}: {error.strerror or error}") from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if uri.tls is not None:
        made = _encrypted(made, uri, uri.tls)
    made.setblocking(False)
    return made


def _encrypted(plain: socket.socket, uri: Uri, tls: UriTls) -> socket.socket:
    try:
        return encrypt(plain, uri, tls)
    except ClientError:
        plain.close()
        raise


def read_method(payload: bytes) -> Method:
    try:
        return decode_method(payload)
    except AmqpError as error:
        raise ClientError(f"the broker sent a method nobody can read: {error.text}") from error


def unexpected(method: Method) -> ClientError:
    return ClientError(f"the broker sent {method.name} when nothing like it was due")


def closing(channel: int, method: Method) -> tuple[bytes, ClosedByBrokerError] | None:
    """If this method closes the connection or the channel: the close-ok to send, and the error to raise."""
    if isinstance(method, ConnectionClose):
        error = ClosedByBrokerError("connection", method.reply_code, method.reply_text)
        return method_frame(0, ConnectionCloseOk()), error
    if isinstance(method, ChannelClose):
        error = ClosedByBrokerError("channel", method.reply_code, method.reply_text)
        return method_frame(channel, ChannelCloseOk()), error
    return None
