"""Every method of AMQP 0-9-1 and of RabbitMQ's extensions, declared once.

A method is a class whose annotations are its arguments, in the order of the wire and by the names of
their AMQP types; encoding, decoding, names and ids derive from that. Consecutive bits share an octet,
lowest bit first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias, TypeVar, dataclass_transform

from warren.amqp.errors import CommandInvalid, SyntaxFault
from warren.amqp.table import Table, decode_table, encode_name, encode_table

Octet: TypeAlias = int
Short: TypeAlias = int
Long: TypeAlias = int
LongLong: TypeAlias = int
Bit: TypeAlias = bool
ShortStr: TypeAlias = str
LongStr: TypeAlias = bytes
FieldTable: TypeAlias = Table

METHOD_ID = struct.Struct(">HH")
_LENGTH = struct.Struct(">I")
_LAYOUTS = {"Octet": struct.Struct(">B"), "Short": struct.Struct(">H"), "Long": _LENGTH,
            "LongLong": struct.Struct(">Q")}  # fmt: skip


class Method:
    """One method with its arguments."""

    __slots__ = ()
    id: ClassVar[tuple[int, int]]  # the numbers of its class and of itself
    name: ClassVar[str]  # as in the specification: `queue.declare-ok`
    layout: ClassVar[list[tuple[str, str]]]  # the name and AMQP type of each argument

    def encode(self) -> bytes:
        """The payload of the method's frame."""
        parts, bits, used = [METHOD_ID.pack(*self.id)], 0, 0
        for name, kind in self.layout:
            value = getattr(self, name)
            if kind == "Bit":
                bits |= value << used
                used += 1
                continue
            if used:
                parts.append(bytes((bits,)))
                bits = used = 0
            parts.append(_encode(kind, value))
        if used:
            parts.append(bytes((bits,)))
        return b"".join(parts)


METHODS: dict[tuple[int, int], type[Method]] = {}
M = TypeVar("M", bound=Method)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def method(class_id: int, method_id: int) -> Callable[[type[M]], type[M]]:
    def declare(cls: type[M]) -> type[M]:
        made = dataclass(frozen=True, kw_only=True)(cls)
        made.id = (class_id, method_id)
        made.name = _spec_name(made.__name__)
        made.layout = [(f.name, str(f.type)) for f in fields(made)]  # type: ignore[arg-type]
        METHODS[made.id] = made
        return made

    return declare


def _spec_name(name: str) -> str:
    """`queue.declare-ok` for `QueueDeclareOk`."""
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in name).split()
    return f"{words[0]}.{'-'.join(words[1:])}"


def _encode(kind: str, value: object) -> bytes:
    if kind == "ShortStr":
        return encode_name(value)  # type: ignore[arg-type]  # the argument's kind says its type
    if kind == "LongStr":
        return _LENGTH.pack(len(value)) + value  # type: ignore[arg-type,operator]
    if kind == "FieldTable":
        return encode_table(value)  # type: ignore[arg-type]
    return _LAYOUTS[kind].pack(value)


def decode_method(payload: bytes) -> Method:
    """The method in a frame's payload; 502 if it is malformed, 503 if no method has that id."""
    if len(payload) < METHOD_ID.size:
        raise SyntaxFault("method frame is too short")
    ids = METHOD_ID.unpack_from(payload)
    kind = METHODS.get(ids)
    if kind is None:
        raise CommandInvalid(f"unknown method {ids[0]}.{ids[1]}")
    try:
        values, at = _decode_arguments(kind, payload)
    except (struct.error, IndexError):
        raise SyntaxFault(f"{kind.name} ends too early") from None
    if at != len(payload):
        raise SyntaxFault(f"{kind.name} has bytes behind its arguments")
    return kind(**values)


def _decode_arguments(kind: type[Method], payload: bytes) -> tuple[dict[str, object], int]:
    values: dict[str, object] = {}
    at, used = METHOD_ID.size, 0
    for name, argument in kind.layout:
        if argument == "Bit":
            at += used == 0
            values[name] = bool(payload[at - 1] >> used & 1)
            used += 1
            continue
        used = 0
        values[name], at = _decode(argument, payload, at)
    return values, at


def _decode(kind: str, payload: bytes, at: int) -> tuple[object, int]:
    if kind == "ShortStr":
        stop = at + 1 + payload[at]
        return _slice(payload, at + 1, stop).decode("utf-8", "surrogateescape"), stop
    if kind == "LongStr":
        stop = at + 4 + int(_LENGTH.unpack_from(payload, at)[0])
        return _slice(payload, at + 4, stop), stop
    if kind == "FieldTable":
        return decode_table(payload, at)
    layout = _LAYOUTS[kind]
    return layout.unpack_from(payload, at)[0], at + layout.size


def _slice(payload: bytes, start: int, stop: int) -> bytes:
    if stop > len(payload):
        raise IndexError
    return payload[start:stop]


# --- connection ---------------------------------------------------------------------------------------


@method(10, 10)
class ConnectionStart(Method):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: FieldTable
    mechanisms: LongStr
    locales: LongStr = b"en_US"


@method(10, 11)
class ConnectionStartOk(Method):
    client_properties: FieldTable
    mechanism: ShortStr = "PLAIN"
    response: LongStr
    locale: ShortStr = "en_US"


@method(10, 20)
class ConnectionSecure(Method):
    challenge: LongStr


@method(10, 21)
class ConnectionSecureOk(Method):
    response: LongStr


@method(10, 30)
class ConnectionTune(Method):
    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 31)
class ConnectionTuneOk(Method):
    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 40)
class ConnectionOpen(Method):
    virtual_host: ShortStr = "/"
    capabilities: ShortStr = ""
    insist: Bit = False


@method(10, 41)
class ConnectionOpenOk(Method):
    known_hosts: ShortStr = ""


@method(10, 50)
class ConnectionClose(Method):
    reply_code: Short
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@method(10, 51)
class ConnectionCloseOk(Method):
    pass


@method(10, 60)
class ConnectionBlocked(Method):
    reason: ShortStr


@method(10, 61)
class ConnectionUnblocked(Method):
    pass


@method(10, 70)
class ConnectionUpdateSecret(Method):
    new_secret: LongStr
    reason: ShortStr


@method(10, 71)
class ConnectionUpdateSecretOk(Method):
    pass


# --- channel ------------------------------------------------------------------------------------------


@method(20, 10)
class ChannelOpen(Method):
    out_of_band: ShortStr = ""


@method(20, 11)
class ChannelOpenOk(Method):
    channel_id: LongStr = b""


@method(20, 20)
class ChannelFlow(Method):
    active: Bit


@method(20, 21)
class ChannelFlowOk(Method):
    active: Bit


@method(20, 40)
class ChannelClose(Method):
    reply_code: Short
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@method(20, 41)
class ChannelCloseOk(Method):
    pass


# --- exchange -----------------------------------------------------------------------------------------


@method(40, 10)
class ExchangeDeclare(Method):
    reserved: Short = 0
    exchange: ShortStr
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: FieldTable


@method(40, 11)
class ExchangeDeclareOk(Method):
    pass


@method(40, 20)
class ExchangeDelete(Method):
    reserved: Short = 0
    exchange: ShortStr
    if_unused: Bit = False
    no_wait: Bit = False


@method(40, 21)
class ExchangeDeleteOk(Method):
    pass


@method(40, 30)
class ExchangeBind(Method):
    reserved: Short = 0
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: FieldTable


@method(40, 31)
class ExchangeBindOk(Method):
    pass


@method(40, 40)
class ExchangeUnbind(Method):
    reserved: Short = 0
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: FieldTable


@method(40, 51)
class ExchangeUnbindOk(Method):
    pass


# --- queue --------------------------------------------------------------------------------------------


@method(50, 10)
class QueueDeclare(Method):
    reserved: Short = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: FieldTable


@method(50, 11)
class QueueDeclareOk(Method):
    queue: ShortStr
    message_count: Long
    consumer_count: Long


@method(50, 20)
class QueueBind(Method):
    reserved: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: FieldTable


@method(50, 21)
class QueueBindOk(Method):
    pass


@method(50, 30)
class QueuePurge(Method):
    reserved: Short = 0
    queue: ShortStr = ""
    no_wait: Bit = False


@method(50, 31)
class QueuePurgeOk(Method):
    message_count: Long


@method(50, 40)
class QueueDelete(Method):
    reserved: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@method(50, 41)
class QueueDeleteOk(Method):
    message_count: Long


@method(50, 50)
class QueueUnbind(Method):
    reserved: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr
    routing_key: ShortStr = ""
    arguments: FieldTable


@method(50, 51)
class QueueUnbindOk(Method):
    pass


# --- basic --------------------------------------------------------------------------------------------


@method(60, 10)
class BasicQos(Method):
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_: Bit = False


@method(60, 11)
class BasicQosOk(Method):
    pass


@method(60, 20)
class BasicConsume(Method):
    reserved: Short = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: FieldTable


@method(60, 21)
class BasicConsumeOk(Method):
    consumer_tag: ShortStr


@method(60, 30)
class BasicCancel(Method):
    consumer_tag: ShortStr
    no_wait: Bit = False


@method(60, 31)
class BasicCancelOk(Method):
    consumer_tag: ShortStr


@method(60, 40)
class BasicPublish(Method):
    reserved: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50)
class BasicReturn(Method):
    reply_code: Short
    reply_text: ShortStr
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 60)
class BasicDeliver(Method):
    consumer_tag: ShortStr
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 70)
class BasicGet(Method):
    reserved: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


@method(60, 71)
class BasicGetOk(Method):
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr
    message_count: Long


@method(60, 72)
class BasicGetEmpty(Method):
    cluster_id: ShortStr = ""


@method(60, 80)
class BasicAck(Method):
    delivery_tag: LongLong
    multiple: Bit = False


@method(60, 90)
class BasicReject(Method):
    delivery_tag: LongLong
    requeue: Bit = True


@method(60, 100)
class BasicRecoverAsync(Method):
    requeue: Bit = False


@method(60, 110)
class BasicRecover(Method):
    requeue: Bit = False


@method(60, 111)
class BasicRecoverOk(Method):
    pass


@method(60, 120)
class BasicNack(Method):
    delivery_tag: LongLong
    multiple: Bit = False
    requeue: Bit = True


# --- confirm and tx -----------------------------------------------------------------------------------


@method(85, 10)
class ConfirmSelect(Method):
    no_wait: Bit = False


@method(85, 11)
class ConfirmSelectOk(Method):
    pass


@method(90, 10)
class TxSelect(Method):
    pass


@method(90, 11)
class TxSelectOk(Method):
    pass


@method(90, 20)
class TxCommit(Method):
    pass


@method(90, 21)
class TxCommitOk(Method):
    pass


@method(90, 30)
class TxRollback(Method):
    pass


@method(90, 31)
class TxRollbackOk(Method):
    pass
