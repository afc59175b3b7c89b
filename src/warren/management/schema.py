"""JSON schemas, as the OpenAPI description has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Schema: TypeAlias = Mapping[str, object]

ANY: Schema = {}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TABLE: Schema = {"type": "object"}
BYTES: Schema = {"type": "string", "format": "binary"}
WORDS: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def rows(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def or_none(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def record(required: Mapping[str, Schema] | None = None, /, **optional: Schema) -> Schema:
    """An object with these fields, and perhaps others."""
    needed = dict(required or {})
    schema: dict[str, object] = {"type": "object", "properties": {**needed, **optional}}
    if needed:
        schema["required"] = list(needed)
    return schema
