"""The compiled decoder against the broker's own, message by message."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.segments import START_MS, message
from warren.amqp.properties import BasicProperties
from warren.amqp.table import (
    Int16,
    Int64,
    Table,
    Timestamp,
    UInt32,
    Value,
    decode_table,
    encode_name,
    encode_table,
)
from warren.broker.message import Message
from warren.pipeline.segments.decode import BAD, END, FULL, MORE, OPEN_END, Decoder
from warren.pipeline.segments.log import pack_acked
from warren.pipeline.segments.schema import SCHEMA
from warren.storage.format import encode_record

TEXTS = ("message_id", "correlation_id", "content_type", "content_encoding", "type", "app_id", "user_id", "reply_to", "expiration")  # fmt: skip  # noqa: E501

short_text = st.text(max_size=20).filter(lambda text: len(text.encode("utf-8", "surrogateescape")) < 256)
odd_text = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
name = short_text | odd_text
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(2**15), 2**15 - 1).map(Int16)
    | st.integers(0, 2**32 - 1).map(UInt32)
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | st.floats()
    | st.text()
    | st.binary(max_size=20)
    | st.binary(max_size=20).map(bytearray)
    | st.builds(Decimal, st.integers(-(2**31), 2**31 - 1)).map(lambda number: number.scaleb(-3))
)
value = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(name, inner, max_size=4), max_leaves=8
)
properties = st.builds(
    BasicProperties,
    headers=st.none() | st.dictionaries(name, value, max_size=5),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    cluster_id=st.none() | name,
    **{text: st.none() | name for text in TEXTS},
)


def readable(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def as_json(given: Value) -> str:
    """As `json_text.pyx` says."""
    if isinstance(given, bytes | bytearray):
        try:
            text = given.decode() if isinstance(given, bytes) else None
        except UnicodeDecodeError:
            text = None
        mark = "!bytes" if isinstance(given, bytes) else "!bytearray"
        return json.dumps(text, ensure_ascii=False) if text is not None else f'{{"{mark}":"{given.hex()}"}}'
    if isinstance(given, float) and not math.isfinite(given):
        return '"NaN"' if math.isnan(given) else '"Infinity"' if given > 0 else '"-Infinity"'
    if isinstance(given, list):
        return f"[{','.join(map(as_json, given))}]"
    if isinstance(given, dict):
        fields = (
            f"{json.dumps(readable(name), ensure_ascii=False)}:{as_json(v)}" for name, v in given.items()
        )
        return f"{{{','.join(fields)}}}"
    return str(given) if isinstance(given, Decimal) else json.dumps(given, ensure_ascii=False)


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


def one_row(given: BasicProperties, **options: Any) -> dict[str, Any]:
    (row,) = decode_all(encode_record(1, START_MS, message(b"body", given)), **options)
    return row


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
        headers = None if seen is None else {readable(n): as_json(v) for n, v in seen.items()}
        assert {column: row[column] for column in expected} == expected
        assert (None if row["headers"] is None else dict(row["headers"])) == headers
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
    assert dict(row["headers"]) == {"a": "2", "b": '"x"'}


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


@settings(deadline=None)
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
