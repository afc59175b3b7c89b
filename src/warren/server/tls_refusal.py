"""Refusing a client in a TLS handshake with an alert, which tells the client why.

OpenSSL writes an alert when a handshake fails, but the event loop closes the socket at once, without sending
it. So a handshake that fails here seems to wait for more from the client: then the loop sends what OpenSSL
has written. What the client still sends is thrown away, until it closes its socket or the time for handshakes
is up. To close at once would reset the socket, and the client might never see the alert.
"""

from __future__ import annotations

import ssl
from contextvars import ContextVar


class Handshake:
    """One client's handshake. Who begins it finds here why it has failed, since the loop does not tell."""

    def __init__(self) -> None:
        self.refusal: ssl.SSLError | None = None


HANDSHAKE: ContextVar[Handshake] = ContextVar("HANDSHAKE")
"""That of the client whose socket the loop is given. The loop makes the TLS object of a socket in the context
in which it got the socket.
"""


class AlertingObject(ssl.SSLObject):
    """The TLS of one connection."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    handshake: Handshake | None  # None if nobody would look why it has failed

    def do_handshake(self) -> None:
        if self.handshake is None:
            return super().do_handshake()
        if self.handshake.refusal is None:
            try:
                return super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                if not self.outgoing.pending:  # there is no alert, as for a client that speaks no TLS
                    raise
                self.handshake.refusal = error.with_traceback(None)  # it would refer to this object
        self.incoming.read()
        raise ssl.SSLWantReadError("the client has yet to close its socket")


class AlertingContext(ssl.SSLContext):
    sslobject_class = AlertingObject

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, AlertingObject)
        made.incoming, made.outgoing = incoming, outgoing
        made.handshake = HANDSHAKE.get(None)
        return made
