"""A message of a queue as RabbitMQ's API shows it."""

from __future__ import annotations

import base64
import codecs

from warren.broker.entry import Entry
from warren.management.message_properties import PROPERTIES, properties_shown
from warren.management.schema import COUNT, FLAG, TEXT, one_of, record

AUTO, BASE64, STRING = "auto", "base64", "string"
UTF_8 = codecs.getincrementaldecoder("utf-8")
MESSAGE = record(
    {
        "payload": TEXT,
        "payload_bytes": COUNT,
        "payload_encoding": one_of(STRING, BASE64),
        "exchange": TEXT,
        "routing_key": TEXT,
        "properties": PROPERTIES,
        "redelivered": FLAG,
        "message_count": COUNT,
    }
)


def shown(entry: Entry, message_count: int, *, encoding: str, truncate: int | None) -> dict[str, object]:
    """`message_count` is how many messages the queue has besides. Of the body, up to `truncate` bytes are
    shown: as text if it is UTF-8 and the encoding is `auto`, else in base 64.
    """
    message = entry.message
    body = message.body[:truncate]
    payload, payload_encoding = _payload(body, encoding, is_cut=len(body) < len(message.body))
    return {
        "payload_bytes": len(message.body),
        "redelivered": entry.delivery_count > 0,
        "exchange": message.exchange_name,
        "routing_key": message.key,
        "message_count": message_count,
        "properties": properties_shown(message.decode_properties()),
        "payload": payload,
        "payload_encoding": payload_encoding,
    }


def _payload(body: bytes, encoding: str, *, is_cut: bool) -> tuple[str, str]:
    text = _text(body, is_cut=is_cut) if encoding == AUTO else None
    if text is None:
        return base64.b64encode(body).decode("ascii"), BASE64
    return text, STRING


def _text(body: bytes, *, is_cut: bool) -> str | None:
    """A body as text; None if it is not UTF-8. If it is cut, a part of a character at its end is left out."""
    try:
        return UTF_8().decode(body, final=not is_cut)
    except UnicodeDecodeError:
        return None
