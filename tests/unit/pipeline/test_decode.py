"""The compiled decoder against the broker's own, message by message."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.segments import START_MS, message
from warren.amqp.properties import BasicProperties
from warren.amqp.table import (
    DOUBLE,
    LENGTH,
    Float32,
    Int8,
    Int16,
    Int64,
    OldInt64,
    Table,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
    Value,
    decode_table,
    encode_name,
    encode_table,
    encode_value,
)
from warren.broker.message import Message
from warren.pipeline.segments.decode import BAD, END, FULL, MORE, OPEN_END, Decoder
from warren.pipeline.segments.log import pack_acked
from warren.pipeline.segments.schema import SCHEMA
from warren.pipeline.sink.headers import HeadersEncoder
from warren.storage.format import encode_record
from warren.storage.table_text import table_to_json

LAST_SECOND = 253_402_300_799
TEXTS = ("message_id", "correlation_id", "content_type", "content_encoding", "type", "app_id", "user_id", "reply_to", "expiration", "cluster_id")  # fmt: skip  # noqa: E501

short_text = st.text(max_size=20).filter(lambda text: len(text.encode("utf-8", "surrogateescape")) < 256)
odd_text = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
name = short_text | odd_text
KINDS = {
    b"I": "int32", b"l": "int64", b"L": "oldint64", b"s": "int16", b"u": "uint16", b"b": "int8",
    b"B": "uint8", b"i": "uint32", b"T": "timestamp",
    b"d": "float", b"f": "float32", b"D": "decimal", b"t": "bool",
    b"S": "bytes", b"x": "bytearray", b"F": "table", b"A": "array",
}  # fmt: skip


def is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(2**7), 2**7 - 1).map(Int8)
    | st.integers(0, 2**8 - 1).map(UInt8)
    | st.integers(-(2**15), 2**15 - 1).map(Int16)
    | st.integers(0, 2**16 - 1).map(UInt16)
    | st.integers(0, 2**32 - 1).map(UInt32)
    | st.integers(-(2**63), 2**63 - 1).map(Int64)
    | st.integers(-(2**63), 2**63 - 1).map(OldInt64)
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | st.floats()
    | st.floats(width=32, allow_nan=False).map(Float32)
    | st.text()
    | st.binary(max_size=20).filter(lambda raw: not is_text(raw))
    | st.binary(max_size=20).map(bytearray)
    | st.builds(Decimal, st.integers(-(2**31), 2**31 - 1)).map(lambda number: number.scaleb(-3))
)
value = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(short_text | st.just("!odd"), inner, max_size=4)
    ),
    max_leaves=8,
)
properties = st.builds(
    BasicProperties,
    headers=st.none() | st.dictionaries(name, value, max_size=5),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    **{text: st.none() | name for text in TEXTS},
)


def readable(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def as_text(given: Value) -> tuple[str | None, str | None]:
    """The text and type of a value, by the rules in `header_text.pyx`."""
    if given is None or isinstance(given, str):
        return given, None
    kind = KINDS[encode_value(given)[:1]]
    if isinstance(given, bool):
        return str(given).lower(), kind
    if isinstance(given, bytes | bytearray):
        return given.hex(), kind
    if isinstance(given, float):
        return nan_text(given) if math.isnan(given) else float_text(given), kind
    if isinstance(given, list | dict):
        marked = table_to_json({"": given})[""]
        inner = marked["!table"] if isinstance(marked, dict) and [*marked] == ["!table"] else marked
        return json.dumps(inner, ensure_ascii=False, separators=(",", ":")), kind
    return str(given), kind


def float_text(given: float) -> str:
    infinite = "Infinity" if given > 0 else "-Infinity"
    return repr(float(given)) if math.isfinite(given) else infinite


def nan_text(given: float) -> str:
    bits = encode_value(given)[1:]
    return "NaN" if bits == DOUBLE.pack(math.nan) else f"NaN:{bits.hex()}"


def decode_all(records: bytes, **options: Any) -> list[dict[str, Any]]:
    decoder = Decoder("/", "q", **options)
    decoder.feed(records, 0)
    batch = decoder.take()
    if batch is None:
        return []
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def taken(decoder: Decoder) -> pa.RecordBatch:
    batch = decoder.take()
    assert batch is not None
    return batch


def told(row: dict[str, Any]) -> dict[str, tuple[str | None, str | None]] | None:
    """The texts and types of a row's headers."""
    if row["headers"] is None:
        assert row["header_types"] is None
        return None
    types = dict(row["header_types"])
    assert types.keys() <= dict(row["headers"]).keys()
    return {name: (text, types.get(name)) for name, text in row["headers"]}


def one_row(given: BasicProperties, **options: Any) -> dict[str, Any]:
    (row,) = decode_all(encode_record(1, START_MS, message(b"body", given)), **options)
    return row


@settings(max_examples=60)
@given(st.lists(st.tuples(properties, name, name, st.binary(max_size=50)), min_size=1, max_size=5))
def test_rows_are_what_the_broker_decodes(given: list[tuple[BasicProperties, str, str, bytes]]) -> None:
    records = [
        encode_record(
            5 + i, START_MS + i, Message(encode_name(exchange), encode_name(key), each.encode(), body, True)
        )
        for i, (each, exchange, key, body) in enumerate(given)
    ]
    for i, (row, (each, exchange, key, body)) in enumerate(
        zip(decode_all(b"".join(records)), given, strict=True)
    ):
        expected: dict[str, Any] = {text: readable(getattr(each, text)) for text in TEXTS}
        expected |= {"vhost": "/", "queue": "q", "offset": 4 + i, "body": body}
        expected |= {"exchange": readable(exchange), "routing_key": readable(key)}
        expected |= {"priority": each.priority, "delivery_mode": each.delivery_mode}
        seen = decode_table(encode_table(each.headers))[0] if each.headers is not None else None
        texts = None if seen is None else {readable(n): as_text(v) for n, v in seen.items()}
        assert {column: row[column] for column in expected} == expected
        assert told(row) == texts
        published = each.timestamp if (each.timestamp or 0) <= LAST_SECOND else None
        assert row["published_at"] == (None if published is None else datetime.fromtimestamp(published, UTC))
        assert row["timestamp"] == datetime.fromtimestamp((START_MS + i) / 1000, UTC)


@pytest.mark.parametrize("option", ["headers", "body"])
def test_what_is_not_wanted_is_null(option: str) -> None:
    given = BasicProperties(headers={"a": 1})
    assert one_row(given)[option] is not None
    assert one_row(given, **{option: False})[option] is None


def test_last_of_headers_with_one_name_holds() -> None:
    twice = encode_table({"a": 1})[4:] + encode_table({"b": "x", "a": 2})[4:]
    raw = b"\x20\x00" + len(twice).to_bytes(4, "big") + twice
    (row,) = decode_all(encode_record(1, 0, Message(b"\0", b"\0", raw, b"", True)))
    assert told(row) == {"a": ("2", "int32"), "b": ("x", None)}


def test_last_of_headers_with_one_name_holds_among_voids_and_other_rows() -> None:
    twice = encode_table({"a": None, "b": 1})[4:] + encode_table({"c": None, "a": "x", "b": None})[4:]
    raw = b"\x20\x00" + len(twice).to_bytes(4, "big") + twice
    around = message(b"", BasicProperties(headers={"v": None, "n": 1, "s": "t"}))
    given = [around, Message(b"\0", b"\0", raw, b"", True), around]
    rows = decode_all(b"".join(encode_record(1 + i, 0, each) for i, each in enumerate(given)))
    beside = {"v": (None, None), "n": ("1", "int32"), "s": ("t", None)}
    assert [told(row) for row in rows] == [
        beside,
        {"a": ("x", None), "b": (None, None), "c": (None, None)},
        beside,
    ]


@settings(max_examples=200)
@given(st.dictionaries(short_text, value, max_size=5))
def test_header_that_is_read_and_written_back_is_the_same_type_and_value(headers: Table) -> None:
    """The encoded bytes are compared, so that nested values have the same types, too."""
    decoder = Decoder("/", "q")
    decoder.feed(encode_record(1, 0, message(b"", BasicProperties(headers=headers))), 0)
    batch = taken(decoder)
    (written,) = HeadersEncoder().encode(batch["headers"], batch["header_types"])
    assert written is not None
    assert {
        name: encode_value(v) for name, v in decode_table(LENGTH.pack(len(written)) + written)[0].items()
    } == {name: encode_value(v) for name, v in headers.items()}


@pytest.mark.parametrize("bits", ["7ff8000000000000", "fff8000000000000", "7ff4000000000001"])
def test_float_that_is_not_a_number_keeps_its_bits(bits: str) -> None:
    fields = (
        encode_name("n") + b"d" + bytes.fromhex(bits) + encode_name("m") + b"f" + bytes.fromhex("7fa00001")
    )
    raw = b"\x20\x00" + LENGTH.pack(len(fields)) + fields
    decoder = Decoder("/", "q")
    decoder.feed(encode_record(1, 0, Message(b"\0", b"\0", raw, b"", True)), 0)
    batch = taken(decoder)
    assert HeadersEncoder().encode(batch["headers"], batch["header_types"]) == [fields]


def test_stream_is_named_in_each_row() -> None:
    decoder = Decoder("/", "q", "c0ffee-1")
    decoder.feed(records(2), 0)
    assert taken(decoder)["stream_id"].to_pylist() == ["c0ffee-1"] * 2
    assert decode_all(records(1))[0]["stream_id"] is None


# --- x-death ---


def death(**changes: Value) -> Table:
    whole: Table = {
        "count": Int64(3),
        "reason": "rejected",
        "queue": "q",
        "time": Timestamp(START_MS // 1000),
        "exchange": "e",
        "routing-keys": ["a", "b"],
    }
    return {**whole, **changes}


def test_x_death_is_decoded() -> None:
    row = one_row(BasicProperties(headers={"x-death": [death(), death(**{"original-expiration": "50"})]}))
    first, second = row["x_death"]
    assert first == {
        "count": 3,
        "exchange": "e",
        "queue": "q",
        "reason": "rejected",
        "routing_keys": ["a", "b"],
        "time": datetime.fromtimestamp(START_MS // 1000, UTC),
        "original_expiration": None,
    }
    assert second == {**first, "original_expiration": "50"}


def test_x_death_of_wrong_types_is_null_where_it_is_wrong() -> None:
    entry = death(count="many", reason=5, time="now")
    entry["routing-keys"] = ["a", 5]
    row = one_row(BasicProperties(headers={"x-death": [5, entry]}))
    (found,) = row["x_death"]
    assert [found[name] for name in ("count", "reason", "time")] == [None] * 3
    assert (found["queue"], found["routing_keys"]) == ("q", ["a", None])


@pytest.mark.parametrize("headers", [None, {}, {"x-death": 5}, {"other": [1]}])
def test_without_deaths_x_death_is_null(headers: Table | None) -> None:
    assert one_row(BasicProperties(headers=headers))["x_death"] is None


def test_x_death_is_there_without_headers() -> None:
    row = one_row(BasicProperties(headers={"x-death": [death()]}), headers=False)
    assert row["headers"] is None
    assert len(row["x_death"]) == 1


# --- which records ---


def records(count: int, first: int = 1) -> bytes:
    return b"".join(encode_record(first + i, START_MS + i, message(b"%d" % i)) for i in range(count))


def offsets(decoder: Decoder) -> list[int]:
    batch = decoder.take()
    return [] if batch is None else batch["offset"].to_pylist()


def test_positions_before_first_and_from_end_on_are_left_out() -> None:
    decoder = Decoder("/", "q")
    decoder.seek(0, 3, 6, b"")
    decoder.feed(records(9), 0)
    assert decoder.state == END
    assert offsets(decoder) == [2, 3, 4]


def test_times_before_since_and_from_until_on_are_left_out() -> None:
    decoder = Decoder("/", "q", since_ms=START_MS + 2, until_ms=START_MS + 4)
    decoder.feed(records(9), 0)
    assert offsets(decoder) == [2, 3]


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(2, 1 << 20), (100, 100)])
def test_batch_is_bounded_in_rows_and_bytes(rows_max: int, bytes_max: int) -> None:
    decoder = Decoder("/", "q", rows_max=rows_max, bytes_max=bytes_max)
    data, at, found = records(5), 0, []
    while True:
        at = decoder.feed(data, at)
        found.append(offsets(decoder))
        if decoder.state != FULL:
            break
    assert found == [[0, 1], [2, 3], [4]]


def test_record_above_the_limit_of_bytes_is_a_batch_of_its_own() -> None:
    decoder = Decoder("/", "q", bytes_max=10)
    decoder.feed(records(2), 0)
    assert decoder.state == FULL
    assert offsets(decoder) == [0]


@pytest.mark.parametrize("cut", range(1, len(records(1)) + 1))
def test_any_part_of_a_record_needs_more_or_is_bad(cut: int) -> None:
    whole = records(2)
    decoder = Decoder("/", "q")
    assert decoder.feed(whole[:-cut], 0) == len(whole) // 2
    assert decoder.state == MORE
    assert offsets(decoder) == [0]


def test_record_that_is_damaged_in_any_byte_is_bad() -> None:
    whole = bytearray(records(1))
    length = int.from_bytes(whole[4:8], "little")
    for at in range(length):
        damaged = whole.copy()
        damaged[at] ^= 0x10
        decoder = Decoder("/", "q")
        decoder.feed(damaged, 0)
        assert decoder.state in {BAD, MORE}, at  # a longer length needs more
        assert decoder.take() is None


@given(st.binary(max_size=60))
def test_properties_that_are_not_sound_are_bad(raw: bytes) -> None:
    decoder = Decoder("/", "q")
    decoder.feed(encode_record(1, 0, Message(b"\0", b"\0", raw, b"", True)), 0)
    batch = decoder.take()
    assert (batch is None) is (decoder.state == BAD)
    if batch is not None:
        batch.validate(full=True)


def test_acked_positions_are_left_out() -> None:
    decoder = Decoder("/", "q")
    decoder.seek(0, 1, OPEN_END, pack_acked([(8, 9), (2, 4), (3, 5)]))
    decoder.feed(records(9), 0)
    assert offsets(decoder) == [0, 4, 5, 6, 8]


def test_empty_decoder_takes_nothing() -> None:
    assert Decoder("/", "q").take() is None
