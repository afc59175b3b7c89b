"""The properties of class basic: a word of flags, then the fields that are present.

flags:uint16  { field }*        the highest bit is the first field; bit 0 would announce a second word
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields

from warren.amqp.errors import SyntaxFault
from warren.amqp.table import Table, decode_table, encode_name, encode_table

FLAGS = struct.Struct(">H")
TIMESTAMP = struct.Struct(">Q")
TRANSIENT, PERSISTENT = 1, 2


@dataclass(slots=True, kw_only=True)
class BasicProperties:
    """A message's properties, in the order of the wire; None for those that the publisher did not set."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    def encode(self) -> bytes:
        flags, parts = 0, []
        for bit, name in _FIELDS:
            value = getattr(self, name)
            if value is not None:
                flags |= bit
                parts.append(_encode_field(name, value))
        return FLAGS.pack(flags) + b"".join(parts)


_FIELDS = [(1 << (15 - i), f.name) for i, f in enumerate(fields(BasicProperties))]
_OCTETS = {"delivery_mode", "priority"}


def _encode_field(name: str, value: object) -> bytes:
    if name == "headers":
        return encode_table(value)  # type: ignore[arg-type]  # the field's name says its type
    if name in _OCTETS:
        return bytes((value,))  # type: ignore[arg-type]
    if name == "timestamp":
        return TIMESTAMP.pack(value)
    return encode_name(str(value))


def decode_properties(raw: bytes) -> BasicProperties:
    result = BasicProperties()
    try:
        flags, at = FLAGS.unpack_from(raw)[0], FLAGS.size
        for bit, name in _FIELDS:
            if flags & bit:
                value, at = _decode_field(name, raw, at)
                setattr(result, name, value)
    except (struct.error, IndexError) as error:
        raise SyntaxFault("the properties end too early") from error
    if at != len(raw) or flags & 3:
        raise SyntaxFault("the properties do not match their flags")
    return result


def _decode_field(name: str, raw: bytes, at: int) -> tuple[object, int]:
    if name == "headers":
        return decode_table(raw, at)
    if name in _OCTETS:
        return raw[at], at + 1
    if name == "timestamp":
        return TIMESTAMP.unpack_from(raw, at)[0], at + TIMESTAMP.size
    stop = at + 1 + raw[at]
    if stop > len(raw):
        raise SyntaxFault("the properties end too early")
    return raw[at + 1 : stop].decode("utf-8", "surrogateescape"), stop
