"""The fields of a JSON object that a client sent, read by name and type. Errors name the field.

As in RabbitMQ, `null` is the same as no field, and numbers and truth values may be written as strings.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from warren.amqp.table import Table, encode_table
from warren.broker.parameters import Json
from warren.management.bodies import object_in
from warren.management.digits import number_of
from warren.management.errors import BadRequest

BODY_BYTES_MAX = 256 * 1024
NAME_BYTES_MAX = 255
TRUTHS = {"true": True, "false": False}


class Fields:
    def __init__(self, given: dict[str, Any], what: str = "") -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        self.what = f"{what}: " if what else ""  # what the fields describe, for errors

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def text(self, name: str, default: str | None = None) -> str:
        """A string; without a default there must be one."""
        value = self._given(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return self._encodable(name, value)

    def whole_text(self, name: str, default: str | None = None) -> str:
        """A string that is UTF-8. Others may stand for a name with other bytes in it."""
        return self._encodable(name, self.text(name, default), "strict")

    def name(self, name: str, default: str | None = None) -> str:
        """A string that is short enough for a name."""
        value = self.text(name, default)
        if len(value.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            raise self._wrong(name, f"at most {NAME_BYTES_MAX} bytes")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._given(name, default)
        value = TRUTHS.get(value, value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        value = self._given(name, default)
        if isinstance(value, str) and (size := number_of(value.removeprefix("-"))) is not None:
            value = -size if value.startswith("-") else size
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "a whole number")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number that is not written as a string: RabbitMQ takes no other here."""
        if isinstance(self.given.get(name), str):
            raise self._wrong(name, "a whole number")
        return self.whole(name, default)

    def count(self, name: str, default: int | None = None, *, most: int = 2**63 - 1) -> int:
        """A whole number from 0 to `most`."""
        value = self.whole(name, default)
        if not 0 <= value <= most:
            raise self._wrong(name, f"a number from 0 to {most}")
        return value

    def table(self, name: str, default: Table | None = None) -> Table:
        """An object that AMQP can say. Old versions of RabbitMQ write an empty one as `[]`."""
        value = self._given(name, default) or {}
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        try:
            encode_table(value)
        except (ValueError, RecursionError) as error:
            raise self._wrong(name, f"an object that AMQP can carry ({error})") from None
        return value

    def fields(self, name: str) -> Fields:
        """The fields of an object in this one; none if it is missing."""
        value = self.given.get(name) or {}
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return Fields(value, f"{self.what}{name}")

    def words(self, name: str, default: str | None = None) -> frozenset[str]:
        """A list of strings, or one string with commas between them."""
        value = self._given(name, default)
        words = value.split(",") if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise self._wrong(name, "a list of strings")
        return frozenset(self._encodable(name, word.strip()) for word in words if word.strip())

    def names(self, name: str) -> list[str]:
        """A list of strings."""
        value = self._given(name, None)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(name, "a list of names")
        return [self._encodable(name, each) for each in value]

    def value(self, name: str) -> Json:
        """Any JSON but `null`."""
        value: Json = self._given(name, None)
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            raise self._wrong(name, "JSON") from None
        return value

    def _given(self, name: str, default: object) -> Any:
        value = self.given.get(name, default)
        if value is None:
            raise BadRequest(f"{self.what}key_missing: {name}")
        return value

    def _encodable(self, name: str, value: str, errors: str = "surrogateescape") -> str:
        """JSON can write halves of characters, which nothing else can."""
        try:
            value.encode("utf-8", errors)
        except UnicodeEncodeError:
            raise self._wrong(name, "a string of whole characters") from None
        return value

    def _wrong(self, name: str, expected: str) -> BadRequest:
        return BadRequest(f"{self.what}{name}: expected {expected}")


async def fields_in(request: web.Request, expected: str, *, bytes_max: int = BODY_BYTES_MAX) -> Fields:
    """The fields of the body; none if it is empty or `null`."""
    body = await request.read()
    is_empty = not body or body.strip() == b"null"
    return Fields({} if is_empty else object_in(body, expected, bytes_max=bytes_max))


def name_in(request: web.Request, part: str) -> str:
    """A name in the path, for something that may be new."""
    name = request.match_info[part]
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise BadRequest(f"the name of a {part} has at most {NAME_BYTES_MAX} bytes")
    return name
