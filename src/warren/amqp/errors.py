"""The error tree of AMQP 0-9-1.

A soft error closes the channel it happened on, a hard error closes the connection. The reply text
follows RabbitMQ's form, `NOT_FOUND - no queue 'x' in vhost '/'`, because clients match on it.
"""

from __future__ import annotations

from typing import ClassVar

REPLY_SUCCESS = 200
REPLY_TEXT_MAX = 255


class AmqpError(Exception):
    """A mistake of the peer, with the reply code and text that tell it so."""

    code: ClassVar[int]
    name: ClassVar[str]
    method_id: tuple[int, int] | None = None
    """The method at fault, if the raiser knows better than the connection, which takes the one in hand."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text

    @property
    def reply_text(self) -> str:
        whole = f"{self.name} - {self.text}" if self.text else self.name
        return cut_short(whole)


def cut_short(text: str) -> str:
    """As much of the text as fits into a short string. No character is cut in half."""
    return text.encode("utf-8", "replace")[:REPLY_TEXT_MAX].decode("utf-8", "ignore")


class SoftError(AmqpError):
    """Closes the channel."""


class HardError(AmqpError):
    """Closes the connection."""


class AccessRefused(SoftError):
    code, name = 403, "ACCESS_REFUSED"


class NotFound(SoftError):
    code, name = 404, "NOT_FOUND"


class ResourceLocked(SoftError):
    code, name = 405, "RESOURCE_LOCKED"


class PreconditionFailed(SoftError):
    code, name = 406, "PRECONDITION_FAILED"


class ConnectionForced(HardError):
    code, name = 320, "CONNECTION_FORCED"


class AuthenticationRefused(HardError):
    """A refused login: the only 403 that closes the connection."""

    code, name = 403, "ACCESS_REFUSED"


class FrameError(HardError):
    code, name = 501, "FRAME_ERROR"
    method_id = (0, 0)


class SyntaxFault(HardError):
    code, name = 502, "SYNTAX_ERROR"


class CommandInvalid(HardError):
    code, name = 503, "COMMAND_INVALID"


class ChannelFault(HardError):
    code, name = 504, "CHANNEL_ERROR"


class UnexpectedFrame(HardError):
    code, name = 505, "UNEXPECTED_FRAME"


class NotAllowed(HardError):
    code, name = 530, "NOT_ALLOWED"


class NotImplementedByBroker(HardError):
    code, name = 540, "NOT_IMPLEMENTED"


class InternalError(HardError):
    code, name = 541, "INTERNAL_ERROR"
