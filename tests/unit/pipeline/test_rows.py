"""Rows of Arrow as messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from warren.amqp.methods import BasicPublish, decode_method
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Value
from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import Message
from warren.pipeline.sink.headers import value_of
from warren.pipeline.sink.options import read_options
from warren.pipeline.sink.rows import RowEncoder

AMQP = {"amqp": "amqp://guest:guest@localhost:5672/%2F"}
HEADERS = pa.map_(pa.string(), pa.string())
Columns = dict[str, Any]


def encode(columns: Columns, *, times: int = 1, **options: str) -> list[Message]:
    batch = pa.record_batch(columns)
    encoder = RowEncoder(batch.schema, read_options(AMQP | {"exchange": "shop"} | options), "job/3")
    return [message for _ in range(times) for message in encoder.encode(batch)]


def properties_of(message: Message) -> BasicProperties:
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


def test_headers_are_encoded_by_their_json_also_from_a_slice() -> None:
    rows = [None, [("dropped", "1")], [("n", "5"), ("s", '"5"'), ("shop", "north")], None, []]
    batch = pa.record_batch({"body": [b""] * 5, "headers": pa.array(rows, HEADERS)})
    encoder = RowEncoder(batch.schema, read_options(AMQP | {"exchange": ""}), "job")

    found = [properties_of(message).headers for message in encoder.encode(batch.slice(2))]

    assert found == [{"n": 5, "s": "5", "shop": "north"}, None, {}]


def test_deduplicated_message_carries_its_id_as_a_header_in_place_of_any_other() -> None:
    rows = [None, [("a", "1"), ("x-deduplication-header", '"old"')]]
    columns = {"body": [b"", b""], "headers": pa.array(rows, HEADERS), "message_id": ["é", None]}
    first, second = encode(columns, deduplicate="true")

    assert properties_of(first).headers == {"x-deduplication-header": "é"}
    assert properties_of(second).headers == {"a": 1, "x-deduplication-header": "job/3/1"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("5", 5),
        ("5000000000", 5_000_000_000),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ('"text"', "text"),
        ('[1, {"a": "b"}]', [1, {"a": "b"}]),
        ('{"!bytes": "ff00"}', b"\xff\x00"),
        ("north", "north"),
        ("", ""),
        ("NaN", "NaN"),
        ("{", "{"),
        ("9" * 30, "9" * 30),
        ('{"!odd": 1}', '{"!odd": 1}'),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_text_of_a_header_is_the_json_it_holds_or_itself(text: str | None, value: Value) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"text": ["x"]}, "column body"),
        ({"body": [1]}, "column body cannot be of type int64"),
        ({"body": [b""], "priority": ["1"]}, "column priority cannot be of type string"),
        ({"body": [b""], "headers": ["{}"]}, "column headers cannot be of type string"),
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
