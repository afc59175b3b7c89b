"""SASL: from a mechanism's response to a user and a password."""

from __future__ import annotations

from collections.abc import Callable

from warren.amqp.errors import SyntaxFault
from warren.amqp.table import LENGTH, decode_table


def read_plain(response: bytes) -> tuple[str, bytes]:
    """RFC 4616: [authzid] NUL user NUL password."""
    parts = response.split(b"\0")
    if len(parts) != 3:  # noqa: PLR2004 - the three parts of the docstring's line
        raise SyntaxFault("the PLAIN response must be NUL user NUL password")
    return parts[1].decode("utf-8", "replace"), parts[2]


def read_amqplain(response: bytes) -> tuple[str, bytes]:
    """A field table without its length: LOGIN and PASSWORD."""
    table, _ = decode_table(LENGTH.pack(len(response)) + response)
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if isinstance(password, str):
        password = password.encode()
    if not isinstance(user, str) or not isinstance(password, bytes):
        raise SyntaxFault("the AMQPLAIN response must have LOGIN and PASSWORD")
    return user, password


EXTERNAL = "EXTERNAL"  # the client's certificate says who it is
MECHANISMS: dict[str, Callable[[bytes], tuple[str, bytes]]] = {
    "PLAIN": read_plain,
    "AMQPLAIN": read_amqplain,
}
