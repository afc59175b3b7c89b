"""Which columns to read: all, or those of the schema that the user gives.

Spark 4.3 does not tell a Python source which columns a query uses, so users choose them by `.schema(…)`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from warren.pipeline.segments.errors import BadOption
from warren.pipeline.segments.schema import NEVER_NULL, SCHEMA

FROM_HEADERS = frozenset({"headers", "x_death"})


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns to read."""

    names: tuple[str, ...] = ()  # empty: all
    not_null: frozenset[str] = frozenset()  # those that the user's schema declares NOT NULL
    headers: bool = True  # whether to decode headers and x_death; their columns are null if not
    body: bool = True  # likewise

    def of(self, schema: StructType) -> Self:
        """The columns of a schema; `headers` and `body` stay off if options turned them off."""
        names = tuple(field.name for field in schema.fields)
        not_null = frozenset(field.name for field in schema.fields if not field.nullable)
        _check(schema)
        if list(names) == SCHEMA.names and not not_null:
            return self
        wanted: Collection[str] = set(names)
        return replace(
            self,
            names=names,
            not_null=not_null,
            headers=self.headers and not FROM_HEADERS.isdisjoint(wanted),
            body=self.body and "body" in wanted,
        )


def _check(schema: StructType) -> None:
    for field in schema.fields:
        if field.name not in SCHEMA.names:
            known = ", ".join(SCHEMA.names)
            raise BadOption(f"schema() has a column '{field.name}', which is none of {known}")
        expected = from_arrow_type(SCHEMA.field(field.name).type).simpleString()
        if field.dataType.simpleString() != expected:
            raise BadOption(
                f"column '{field.name}' is of type {expected}, "
                f"not {field.dataType.simpleString()}: change it in schema(), and cast later"
            )
        if not field.nullable and field.name not in NEVER_NULL:
            raise BadOption(f"column '{field.name}' may be null: leave out NOT NULL in schema()")
