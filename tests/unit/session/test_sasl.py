from __future__ import annotations

import pytest

from warren.amqp.errors import SyntaxFault
from warren.amqp.table import Table, encode_table
from warren.session.sasl import read_amqplain, read_plain


@pytest.mark.parametrize(
    ("response", "user", "password"),
    [
        (b"\0me\0secret", "me", b"secret"),
        (b"someone\0me\0secret", "me", b"secret"),
        ("\0mäuschen\0wörter".encode(), "mäuschen", "wörter".encode()),
        (b"\0\0", "", b""),
        (b"\0\xff\0\xff", "\ufffd", b"\xff"),
    ],
)
def test_plain_has_user_and_password(response: bytes, user: str, password: bytes) -> None:
    assert read_plain(response) == (user, password)


@pytest.mark.parametrize("response", [b"", b"me", b"\0me", b"\0me\0secret\0"])
def test_other_plain_response_is_a_syntax_error(response: bytes) -> None:
    with pytest.raises(SyntaxFault):
        read_plain(response)


def amqplain(table: Table) -> bytes:
    """The table without its length."""
    return encode_table(table)[4:]


def test_amqplain_has_user_and_password() -> None:
    assert read_amqplain(amqplain({"LOGIN": "me", "PASSWORD": "sécret"})) == ("me", "sécret".encode())
    assert read_amqplain(amqplain({"LOGIN": "me", "PASSWORD": b"\xff"})) == ("me", b"\xff")


@pytest.mark.parametrize(
    "response",
    [
        b"",
        amqplain({"LOGIN": "me"}),
        amqplain({"PASSWORD": "secret"}),
        amqplain({"LOGIN": 1, "PASSWORD": "secret"}),
        amqplain({"LOGIN": "me", "PASSWORD": 1}),
        b"\x05LOGIN",
        b"\0me\0secret",
    ],
)
def test_other_amqplain_response_is_a_syntax_error(response: bytes) -> None:
    with pytest.raises(SyntaxFault):
        read_amqplain(response)
