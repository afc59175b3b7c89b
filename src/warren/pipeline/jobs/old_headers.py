r"""Converts headers of archives that earlier versions wrote: values were JSON, and there was no header_types.

    then    headers {"kind": "\"order\"", "n": "5"}
    now     headers {"kind": "order", "n": "5"}, header_types {"n": "int32"}

Today a message with headers always has header_types, if only an empty map, so each row shows in which form it
is; an archive that an earlier version began has rows of both. Types are guessed from the JSON, as the earlier
versions did when they replayed such an archive.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

INT32_MAX = 2**31 - 1
MARKS = {"bytes": '{"!bytes":', "bytearray": '{"!bytearray":'}


def with_present_headers(archive: DataFrame) -> DataFrame:
    is_old = sf.col("headers").isNotNull() & sf.col("header_types").isNull()
    texts = sf.transform_values("headers", lambda _name, value: _text(value))
    types = sf.map_filter(
        sf.transform_values("headers", lambda _name, value: _type(value)),
        lambda _name, kind: kind.isNotNull(),
    )
    return archive.withColumns(
        {
            "headers": sf.when(is_old, texts).otherwise(sf.col("headers")),
            "header_types": sf.when(is_old, types).otherwise(sf.col("header_types")),
        }
    )


def _text(value: Column) -> Column:
    in_array = sf.concat(sf.lit("["), value, sf.lit("]"))
    hexadecimal = sf.regexp_extract(value, r'^\{"!\w+":"([0-9a-f]*)"\}$', 1)
    return (
        sf.when(value.startswith('"'), sf.from_json(in_array, "array<string>")[0])
        .when(value == "null", sf.lit(None).cast("string"))
        .when(_is_marked(value), hexadecimal)
        .otherwise(value)
    )


def _type(value: Column) -> Column:
    """The type of a value; null for strings and void, which need none."""
    number = value.try_cast("long")
    is_short = number.between(-INT32_MAX - 1, INT32_MAX)
    kind = sf.when(value.startswith('"') | (value == "null"), sf.lit(None).cast("string"))
    for name, mark in MARKS.items():
        kind = kind.when(value.startswith(mark), name)
    return (
        kind.when(value.startswith("{"), "table")
        .when(value.startswith("["), "array")
        .when(value.isin("true", "false"), "bool")
        .when(value.rlike(r"^-?\d+$") & is_short, "int32")
        .when(value.rlike(r"^-?\d+$") & number.isNotNull(), "int64")
        .when(value.rlike(r"^\d+$"), "timestamp")  # the only integer that can exceed a signed 64-bit one
        .otherwise("float")
    )


def _is_marked(value: Column) -> Column:
    return value.startswith(MARKS["bytes"]) | value.startswith(MARKS["bytearray"])
