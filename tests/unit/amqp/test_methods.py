"""Methods as bytes. The golden ones are written by hand from the specification's tables."""

from __future__ import annotations

import pytest

from warren.amqp import methods as m
from warren.amqp.errors import CommandInvalid, SyntaxFault
from warren.amqp.table import Int64

EMPTY_TABLE = b"\0\0\0\0"

GOLDEN = [
    (
        m.ConnectionStart(server_properties={}, mechanisms=b"PLAIN", locales=b"en_US"),
        b"\x00\x0a\x00\x0a" + b"\x00\x09" + EMPTY_TABLE + b"\0\0\0\x05PLAIN" + b"\0\0\0\x05en_US",
    ),
    (
        m.ConnectionTuneOk(channel_max=2047, frame_max=131_072, heartbeat=60),
        b"\x00\x0a\x00\x1f" + b"\x07\xff" + b"\x00\x02\x00\x00" + b"\x00\x3c",
    ),
    (m.ConnectionOpen(virtual_host="/"), b"\x00\x0a\x00\x28" + b"\x01/" + b"\x00" + b"\x00"),
    (
        m.ConnectionClose(reply_code=320, reply_text="bye", class_id=60, method_id=40),
        b"\x00\x0a\x00\x32" + b"\x01\x40" + b"\x03bye" + b"\x00\x3c" + b"\x00\x28",
    ),
    (m.ChannelOpenOk(), b"\x00\x14\x00\x0b" + b"\0\0\0\0"),
    (
        m.ExchangeDeclare(exchange="logs", type="topic", durable=True, no_wait=True, arguments={}),
        b"\x00\x28\x00\x0a" + b"\x00\x00" + b"\x04logs" + b"\x05topic" + b"\x12" + EMPTY_TABLE,
    ),
    (m.ExchangeUnbindOk(), b"\x00\x28\x00\x33"),
    (
        m.QueueDeclare(queue="q", passive=True, exclusive=True, auto_delete=True, arguments={"x-expires": 5}),
        b"\x00\x32\x00\x0a" + b"\x00\x00" + b"\x01q" + b"\x0d\0\0\0\x0f" + b"\x09x-expires" + b"I\0\0\0\x05",
    ),
    (
        m.QueueDeclareOk(queue="q", message_count=258, consumer_count=1),
        b"\x00\x32\x00\x0b" + b"\x01q" + b"\x00\x00\x01\x02" + b"\x00\x00\x00\x01",
    ),
    (
        m.BasicQos(prefetch_size=1, prefetch_count=2, global_=True),
        b"\x00\x3c\x00\x0a" + b"\x00\x00\x00\x01" + b"\x00\x02" + b"\x01",
    ),
    (
        m.BasicPublish(exchange="", routing_key="q", mandatory=True),
        b"\x00\x3c\x00\x28" + b"\x00\x00" + b"\x00" + b"\x01q" + b"\x01",
    ),
    (
        m.BasicDeliver(consumer_tag="c", delivery_tag=7, redelivered=True, exchange="e", routing_key="k"),
        b"\x00\x3c\x00\x3c" + b"\x01c" + b"\0\0\0\0\0\0\0\x07" + b"\x01" + b"\x01e" + b"\x01k",
    ),
    (
        m.BasicGetOk(delivery_tag=1, redelivered=False, exchange="", routing_key="q", message_count=3),
        b"\x00\x3c\x00\x47" + b"\0\0\0\0\0\0\0\x01" + b"\x00" + b"\x00" + b"\x01q" + b"\0\0\0\x03",
    ),
    (
        m.BasicNack(delivery_tag=2**64 - 1, multiple=True, requeue=True),
        b"\x00\x3c\x00\x78" + b"\xff" * 8 + b"\x03",
    ),
    (m.ConfirmSelect(no_wait=True), b"\x00\x55\x00\x0a" + b"\x01"),
    (m.TxCommitOk(), b"\x00\x5a\x00\x15"),
]

# The methods of the specification and of RabbitMQ's extensions, by class.
IDS = {
    10: {10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70, 71},
    20: {10, 11, 20, 21, 40, 41},
    40: {10, 11, 20, 21, 30, 31, 40, 51},
    50: {10, 11, 20, 21, 30, 31, 40, 41, 50, 51},
    60: {10, 11, 20, 21, 30, 31, 40, 50, 60, 70, 71, 72, 80, 90, 100, 110, 111, 120},
    85: {10, 11},
    90: {10, 11, 20, 21, 30, 31},
}

VALUES: dict[str, object] = {
    "Octet": 0xA1,
    "Short": 0xA1B2,
    "Long": 0xA1B2C3D4,
    "LongLong": 0xA1B2C3D4E5F60718,
    "Bit": True,
    "ShortStr": "näme",
    "LongStr": b"\x00\xff long",
    "FieldTable": {"a": 1, "b": [True, None, "x"], "c": {"d": Int64(2)}},
}


def a_method(kind: type[m.Method]) -> m.Method:
    return kind(**{name: VALUES[argument] for name, argument in kind.layout})


def ids(case: object) -> str | None:
    if isinstance(case, m.Method):
        return case.name
    return case.__name__ if isinstance(case, type) else None


@pytest.mark.parametrize(("method", "golden"), GOLDEN, ids=ids)
def test_method_has_the_bytes_of_the_specification(method: m.Method, golden: bytes) -> None:
    assert method.encode() == golden
    assert m.decode_method(golden) == method


def test_all_methods_of_the_specification_are_there() -> None:
    assert set(m.METHODS) == {(class_id, method) for class_id, methods in IDS.items() for method in methods}


@pytest.mark.parametrize("kind", m.METHODS.values(), ids=ids)
def test_what_was_encoded_decodes_to_the_same(kind: type[m.Method]) -> None:
    method = a_method(kind)
    assert m.decode_method(method.encode()) == method


@pytest.mark.parametrize("kind", m.METHODS.values(), ids=ids)
def test_method_cut_anywhere_is_a_syntax_error(kind: type[m.Method]) -> None:
    payload = a_method(kind).encode()
    for size in range(len(payload)):
        with pytest.raises(SyntaxFault):
            m.decode_method(payload[:size])


@pytest.mark.parametrize("kind", m.METHODS.values(), ids=ids)
def test_bytes_behind_a_method_are_a_syntax_error(kind: type[m.Method]) -> None:
    with pytest.raises(SyntaxFault, match="behind its arguments"):
        m.decode_method(a_method(kind).encode() + b"\0")


@pytest.mark.parametrize("payload", [b"\x00\x0a\x00\x0c", b"\x00\x1e\x00\x0a", b"\xff\xff\xff\xff"])
def test_unknown_method_is_command_invalid(payload: bytes) -> None:
    with pytest.raises(CommandInvalid):
        m.decode_method(payload)


@pytest.mark.parametrize(("bits", "set_to"), [(b"\x00", False), (b"\x01", True), (b"\xfe", False)])
def test_only_the_bit_of_an_argument_counts(bits: bytes, set_to: bool) -> None:
    assert m.decode_method(b"\x00\x14\x00\x14" + bits) == m.ChannelFlow(active=set_to)


def test_bits_share_octets_lowest_first() -> None:
    declare = m.QueueDeclare(queue="", durable=True, no_wait=True, arguments={}).encode()
    assert declare[7] == 0b10010


def test_short_string_that_is_not_utf8_survives() -> None:
    payload = b"\x00\x3c\x00\x1e" + b"\x02\xff\xfe" + b"\x00"
    assert m.decode_method(payload).encode() == payload


@pytest.mark.parametrize("name", ["x" * 256, "ä" * 128])
def test_short_string_holds_255_bytes_and_no_more(name: str) -> None:
    assert m.decode_method(m.BasicCancelOk(consumer_tag="x" * 255).encode()) == m.BasicCancelOk(
        consumer_tag="x" * 255
    )
    with pytest.raises(ValueError, match="255"):
        m.BasicCancelOk(consumer_tag=name).encode()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (m.ConnectionUpdateSecretOk, "connection.update-secret-ok"),
        (m.QueueDeclareOk, "queue.declare-ok"),
        (m.BasicRecoverAsync, "basic.recover-async"),
        (m.TxSelect, "tx.select"),
    ],
)
def test_method_is_named_as_in_the_specification(kind: type[m.Method], name: str) -> None:
    assert kind.name == name


def test_table_longer_than_its_method_is_a_syntax_error() -> None:
    payload = m.QueueDeclare(queue="q", arguments={}).encode()
    with pytest.raises(SyntaxFault):
        m.decode_method(payload[:-4] + b"\xff\xff\xff\xff")
