"""TLS for our own clients, with a socket that does not block as others do not block."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from warren.client.errors import ClientError
from warren.client.uri import Uri, UriTls

RECORD_BYTES_MAX = 16 * 1024
"""A read with so much room takes a whole record, so that none of it is left where no poll sees it."""

NOT_NOW = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket(ssl.SSLSocket):
    """Raises `BlockingIOError` where other sockets do. Readers have to have room for a record."""

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except NOT_NOW:
            raise BlockingIOError from None

    def recv(self, buflen: int = RECORD_BYTES_MAX, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except NOT_NOW:
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Take all records that have arrived and that there is room for."""
        view = memoryview(buffer)[:nbytes]
        taken = 0
        try:
            while len(view) - taken >= RECORD_BYTES_MAX:
                size = super().recv_into(view[taken:], None, flags)
                if size == 0:
                    break
                taken += size
        except NOT_NOW:
            if not taken:
                raise BlockingIOError from None
        return taken


def encrypt(plain: socket.socket, uri: Uri, tls: UriTls) -> socket.socket:
    """Make the handshake on a socket that is connected, and blocks."""
    try:
        return context_of(tls).wrap_socket(plain, server_hostname=uri.host)
    except ssl.SSLCertVerificationError as error:
        raise ClientError(f"cannot trust {uri.address}: {error.verify_message}") from error
    except OSError as error:
        raise ClientError(f"no TLS with {uri.address}: {error.strerror or error}") from error


def context_of(tls: UriTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    context.sslsocket_class = TlsSocket
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    return context
