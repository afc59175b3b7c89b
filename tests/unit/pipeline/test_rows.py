"""Rows of Arrow as messages."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from warren.amqp.methods import BasicPublish, decode_method
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Float32, Int16, Int64, Timestamp, UInt8, Value
from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import OutgoingMessage
from warren.pipeline.segments.schema import SCHEMA
from warren.pipeline.sink.headers import header_value
from warren.pipeline.sink.options import read_options
from warren.pipeline.sink.rows import RowEncoder, check_columns

AMQP = {"amqp": "amqp://guest:guest@localhost:5672/%2F"}
HEADERS = pa.map_(pa.string(), pa.string())
Columns = dict[str, Any]


def encode(columns: Columns, *, times: int = 1, **options: str) -> list[OutgoingMessage]:
    batch = pa.record_batch(columns)
    encoder = RowEncoder(batch.schema, read_options(AMQP | {"exchange": "shop"} | options), "job/3")
    return [message for _ in range(times) for message in encoder.encode(batch)]


def properties_of(message: OutgoingMessage) -> BasicProperties:
    return decode_properties(message.properties)


def test_row_with_a_body_only_is_a_persistent_message_with_a_stable_id_and_the_default_key() -> None:
    messages = encode({"body": [b"a", b"b"]}, times=2, routingKey="orders")

    assert [message.body for message in messages] == [b"a", b"b", b"a", b"b"]
    assert [properties_of(message).message_id for message in messages] == [f"job/3/{row}" for row in range(4)]
    assert properties_of(messages[0]) == BasicProperties(message_id="job/3/0", delivery_mode=2)
    assert decode_method(messages[0].method) == BasicPublish(
        exchange="shop", routing_key="orders", mandatory=True
    )


def test_every_column_becomes_its_property_and_null_is_no_property() -> None:
    text = {
        name: [f"{name} é", None]
        for name in (
            "content_type",
            "content_encoding",
            "correlation_id",
            "reply_to",
            "expiration",
            "type",
            "app_id",
            "cluster_id",
        )
    }
    columns = text | {
        "body": ["ü", ""],
        "message_id": ["own", None],
        "priority": [7, None],
        "delivery_mode": [1, None],
    }
    full, bare = encode(columns)

    assert full.body == "ü".encode()
    values: dict[str, Any] = {name: column[0] for name, column in text.items()}
    assert properties_of(full) == BasicProperties(message_id="own", priority=7, delivery_mode=1, **values)
    assert properties_of(bare) == BasicProperties(message_id="job/3/1")


def test_columns_that_are_no_property_are_left_alone() -> None:
    (message,) = encode({"body": [b""], "offset": [5], "user_id": ["eve"], "queue": ["q"]})

    assert properties_of(message) == BasicProperties(message_id="job/3/0", delivery_mode=2)


def test_exchange_of_the_option_goes_before_that_of_the_row() -> None:
    columns = {"body": [b"", b""], "exchange": ["a", None], "routing_key": ["x", None]}
    assert [(m.exchange, m.routing_key) for m in encode(columns, routingKey="d")] == [
        ("shop", "x"),
        ("shop", "d"),
    ]

    batch = pa.record_batch(columns)
    encoder = RowEncoder(batch.schema, read_options(AMQP), "job")
    assert [(m.exchange, m.routing_key) for m in encoder.encode(batch)] == [("a", "x"), ("", "")]


def test_headers_are_strings_or_of_the_type_that_is_told_also_from_a_slice() -> None:
    rows = [None, [("dropped", "1")], [("n", "5"), ("s", "5"), ("v", None), ("shop", '"north"')], None, []]
    kinds = [None, [("dropped", "int8")], [("n", "int64"), ("not there", "bool")], None, None]
    batch = pa.record_batch(
        {"body": [b""] * 5, "headers": pa.array(rows, HEADERS), "header_types": pa.array(kinds, HEADERS)}
    )
    encoder = RowEncoder(batch.schema, read_options(AMQP | {"exchange": ""}), "job")

    found = [properties_of(message).headers for message in encoder.encode(batch.slice(2))]

    assert found == [{"n": 5, "s": "5", "v": None, "shop": '"north"'}, None, {}]
    assert found[0] is not None
    assert isinstance(found[0]["n"], Int64)


def test_deduplicated_message_carries_its_id_as_a_header_in_place_of_any_other() -> None:
    rows = [None, [("a", "1"), ("x-deduplication-header", "old")]]
    columns = {"body": [b"", b""], "headers": pa.array(rows, HEADERS), "message_id": ["é", None]}
    first, second = encode(columns, deduplicate="true")

    assert properties_of(first).headers == {"x-deduplication-header": "é"}
    assert properties_of(second).headers == {"a": "1", "x-deduplication-header": "job/3/1"}


def test_message_is_deduplicated_by_a_column_of_its_own_if_there_is_one() -> None:
    columns = {"body": [b"", b""], "message_id": ["a", "b"], "deduplication_id": ["x", None]}
    found = [properties_of(message) for message in encode(columns, deduplicate="true")]

    assert [(each.message_id, each.headers) for each in found] == [
        ("a", {"x-deduplication-header": "x"}),
        ("b", {"x-deduplication-header": "b"}),
    ]


def test_time_of_publishing_is_written_in_whole_seconds() -> None:
    times = pa.array([1_700_000_000_900_000, None], pa.timestamp("us", tz="UTC"))
    found = [properties_of(message) for message in encode({"body": [b"", b""], "published_at": times})]

    assert [each.timestamp for each in found] == [1_700_000_000, None]


def test_properties_of_a_slice_are_those_of_its_rows() -> None:
    columns = {
        "body": [b"1", b"2", b"3"],
        "app_id": ["a", None, "c" * 255],
        "priority": [1, None, 255],
        "published_at": pa.array([1_000_000, None, 3_000_000], pa.timestamp("us", tz="UTC")),
        "headers": pa.array([[("x", "1")], None, [("x", "3")]], HEADERS),
    }
    batch = pa.record_batch(columns).slice(1)
    encoder = RowEncoder(batch.schema, read_options(AMQP | {"exchange": "shop"}), "job/3")

    assert [properties_of(message) for message in encoder.encode(batch)] == [
        BasicProperties(message_id="job/3/0", delivery_mode=2),
        BasicProperties(
            message_id="job/3/1",
            delivery_mode=2,
            app_id="c" * 255,
            priority=255,
            timestamp=3,
            headers={"x": "3"},
        ),
    ]


def test_message_without_an_id_to_deduplicate_by_is_known_by_its_own() -> None:
    columns = {"body": [b""] * 3, "deduplication_id": ["own", "", None]}
    messages = encode(columns | {"headers": pa.array([[], None, []], HEADERS)}, deduplicate="true")

    assert [properties_of(message).headers for message in messages] == [
        {"x-deduplication-header": name} for name in ("own", "job/3/1", "job/3/2")
    ]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (None, None, None),
        (None, "int32", None),
        ("5", None, "5"),
        ("", None, ""),
        ("text", "string", "text"),
        ("5", "int32", 5),
        ("5000000000", "int64", Int64(5_000_000_000)),
        ("255", "uint8", UInt8(255)),
        ("18446744073709551615", "timestamp", Timestamp(2**64 - 1)),
        ("1.5", "float", 1.5),
        ("-Infinity", "float", -math.inf),
        ("1.5", "float32", Float32(1.5)),
        ("true", "bool", True),
        ("1.50", "decimal", Decimal("1.50")),
        ("ff00", "bytes", b"\xff\x00"),
        ("ff00", "bytearray", bytearray(b"\xff\x00")),
        ('[1,{"a":"b"}]', "array", [1, {"a": "b"}]),
        ('{"!odd":{"!int16":7}}', "table", {"!odd": Int16(7)}),
    ],
)
def test_text_of_a_header_is_a_string_or_of_the_type_beside_it(
    text: str | None, kind: str | None, value: Value
) -> None:
    found = header_value(text, kind)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", "int32"),
        ("3000000000", "int32"),
        ("-1", "uint16"),
        ("TRUE!", "bool"),
        ("x", "float"),
        ("NaN:00", "float"),
        ("1e999", "decimal"),
        ("zz", "bytes"),
        ("{", "table"),
        ("[]", "table"),
        ("{}", "array"),
        ("[" * 5000, "array"),
        ("5", "number"),
    ],
)
def test_text_that_is_not_of_its_type_is_an_error_that_names_the_header(text: str, kind: str) -> None:
    columns = {
        "body": [b""],
        "headers": pa.array([[("the one", text)]], HEADERS),
        "header_types": pa.array([[("the one", kind)]], HEADERS),
    }
    with pytest.raises(PipelineError, match=f"column headers: header 'the one' .* is no {kind}"):
        encode(columns)


def test_column_that_nobody_knows_is_named() -> None:
    check_columns([*SCHEMA.names, "date", "deduplication_id"])
    with pytest.raises(
        PipelineError, match="column routingkey means nothing to a write: drop it, or name it"
    ):
        check_columns(["body", "routingkey"])


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"text": ["x"]}, "column body"),
        ({"body": [1]}, "column body cannot be of type int64"),
        ({"body": [b""], "priority": ["1"]}, "column priority cannot be of type string"),
        ({"body": [b""], "headers": ["{}"]}, "column headers cannot be of type string"),
        ({"body": [b""], "published_at": [5]}, "column published_at cannot be of type int64"),
        (
            {"body": [b""], "published_at": pa.array([-1], pa.timestamp("us"))},
            "published_at has a time before",
        ),
        ({"body": [None, b""]}, "body is null"),
        ({"body": [b""], "app_id": ["x" * 256]}, "column app_id has a value of 256 bytes"),
        ({"body": [b""], "priority": [256]}, "column priority has the value 256"),
        ({"body": [b""], "priority": [-1]}, "column priority has the value -1"),
        ({"body": [b""], "routing_key": ["k" * 256]}, "routing key 'kkk"),
        ({"body": [b""], "headers": pa.array([[("n" * 256, "1")]], HEADERS)}, "column headers"),
    ],
)
def test_table_or_row_that_cannot_be_sent_is_an_error_that_names_the_column(
    columns: Columns, text: str
) -> None:
    with pytest.raises(PipelineError, match=text):
        encode(columns)


def test_without_an_exchange_in_option_or_column_there_is_nowhere_to_send_to() -> None:
    with pytest.raises(PipelineError, match="option exchange"):
        RowEncoder(pa.schema([("body", pa.binary())]), read_options(AMQP), "job")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option amqp must say where"),
        ({"amqp": "http://host"}, "option amqp: not an amqp"),
        (AMQP | {"window": "0"}, "option window"),
        (AMQP | {"window": "many"}, "option window"),
        (AMQP | {"mandatory": "perhaps"}, "option mandatory is true or false"),
        (AMQP | {"rate": "-1"}, "option rate"),
        (AMQP | {"rate": "nan"}, "option rate"),
        (AMQP | {"rate": "inf"}, "option rate"),
    ],
)
def test_option_that_makes_no_sense_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(PipelineError, match=text):
        read_options(options)
