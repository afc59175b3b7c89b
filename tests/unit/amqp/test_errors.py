from __future__ import annotations

import pytest

from warren.amqp import errors
from warren.amqp.errors import AmqpError, HardError, SoftError
from warren.amqp.methods import ConnectionClose, decode_method


def subclasses(kind: type[AmqpError]) -> dict[str, int]:
    return {sub.__name__: sub.code for sub in kind.__subclasses__()}


def test_soft_errors_are_those_that_close_the_channel() -> None:
    assert set(subclasses(SoftError).values()) == {403, 404, 405, 406}


def test_hard_errors_are_those_that_close_the_connection() -> None:
    assert set(subclasses(HardError).values()) == {320, 403, 501, 502, 503, 504, 505, 530, 540, 541}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.NotFound("no queue 'x' in vhost '/'"), "NOT_FOUND - no queue 'x' in vhost '/'"),
        (errors.PreconditionFailed("unknown delivery tag 7"), "PRECONDITION_FAILED - unknown delivery tag 7"),
        (errors.ConnectionForced("shutdown"), "CONNECTION_FORCED - shutdown"),
        (errors.NotImplementedByBroker("immediate=true"), "NOT_IMPLEMENTED - immediate=true"),
        (errors.AuthenticationRefused(), "ACCESS_REFUSED"),
    ],
)
def test_reply_text_is_the_name_and_the_reason(error: AmqpError, text: str) -> None:
    assert error.reply_text == text


@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        ("x" * 400, "x" * 243),  # 12 bytes are "NOT_FOUND - "
        ("x" * 243, "x" * 243),
        ("ä" * 400, "ä" * 121),  # 243 is odd: half a character is left out
        ("x" + "🐇" * 100, "x" + "🐇" * 60),
        ("not utf-8: \udcff", "not utf-8: ?"),
    ],
)
def test_reply_text_is_cut_to_what_a_short_string_holds(reason: str, cut: str) -> None:
    text = errors.NotFound(reason).reply_text
    assert text == f"NOT_FOUND - {cut}"
    close = ConnectionClose(reply_code=404, reply_text=text)
    assert decode_method(close.encode()) == close
