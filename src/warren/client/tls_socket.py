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
    context = tls_context(tls)
    context.sslsocket_class = TlsSocket
    try:
        return context.wrap_socket(plain, server_hostname=server_name(uri, tls))
    except ssl.SSLCertVerificationError as error:
        hint = "" if tls.ca_file else "; amqps://…?cacertfile=FILE names those to trust"
        raise ClientError(f"cannot trust {uri.address}: {error.verify_message}{hint}") from error
    except OSError as error:
        raise ClientError(f"no TLS with {uri.address}: {error.strerror or error}") from error


def server_name(uri: Uri, tls: UriTls) -> str | None:
    """The name that the broker's certificate has to have; None if it does not matter, and is not told."""
    return uri.host if tls.server_name is None else tls.server_name or None


def tls_context(tls: UriTls) -> ssl.SSLContext:
    """What a client connects with. Raises `ClientError` if a file cannot be read."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
    except OSError as error:
        raise ClientError(f"cannot read certificates in {tls.ca_file}: {error.strerror}") from error
    if not tls.verify or tls.server_name == "":
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        _load_own(context, tls)
    return context


def _load_own(context: ssl.SSLContext, tls: UriTls) -> None:
    try:
        # a password that is empty is none: without one, OpenSSL would ask for it at the terminal
        context.load_cert_chain(tls.cert_file, tls.key_file or None, tls.key_password)
    except OSError as error:
        files = " and ".join(filter(None, (tls.cert_file, tls.key_file)))
        raise ClientError(f"cannot read certificate and key in {files}: {error.strerror}") from error
