"""Which columns are read for a schema that a user gives."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructType

from warren.pipeline.segments.errors import BadOption
from warren.pipeline.segments.schema import SCHEMA
from warren.pipeline.source.columns import Columns

HEADERS = MapType(StringType(), StringType())


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (StructType().add("offset", LongType()), Columns(names=("offset",), headers=False, body=False)),
        (
            StructType().add("body", BinaryType()).add("headers", HEADERS),
            Columns(names=("body", "headers")),
        ),
        (
            StructType().add("offset", LongType(), nullable=False).add("body", BinaryType()),
            Columns(names=("offset", "body"), not_null=frozenset({"offset"}), headers=False),
        ),
        (from_arrow_schema(SCHEMA), Columns()),
    ],
)
def test_what_a_schema_has_not_is_not_decoded(schema: StructType, expected: Columns) -> None:
    assert Columns().of(schema) == expected


def test_what_options_leave_out_stays_out() -> None:
    schema = StructType().add("body", BinaryType())
    assert Columns(body=False, headers=False).of(schema) == Columns(
        names=("body",), headers=False, body=False
    )


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (StructType().add("size", LongType()), "has a column 'size', which is none of vhost, queue"),
        (StructType().add("offset", IntegerType()), "column 'offset' is of type bigint, not int"),
        (StructType().add("body", BinaryType(), nullable=False), "column 'body' may be null"),
    ],
)
def test_column_that_is_not_there_or_of_another_type_is_told(schema: StructType, told: str) -> None:
    with pytest.raises(BadOption, match=told):
        Columns().of(schema)
