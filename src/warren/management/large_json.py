"""Decoding a large JSON object whose values are lists, such as a file of definitions, without holding the
event loop: `ROWS_A_TURN` items of a list in a turn.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from warren.management.json_text import ROWS_A_TURN

SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse)


async def decode_large_object(body: bytes) -> dict[str, Any]:
    """ValueError if it is not JSON, or no object."""
    reader = _Reader(body.decode("utf-8-sig"))
    found: dict[str, Any] = {}
    reader.expect("{")
    if not reader.goes_on_with("}"):
        while True:
            name = reader.value()
            if not isinstance(name, str):
                raise ValueError(f"expected a name, not {name!r}")  # noqa: TRY004 - it is the text that is wrong
            reader.expect(":")
            found[name] = await _list_in(reader) if reader.goes_on_with("[") else reader.value()
            if not reader.goes_on_with(","):
                break
        reader.expect("}")
    reader.expect_end()
    return found


async def _list_in(reader: _Reader) -> list[Any]:
    """The items of a list, behind its bracket."""
    items: list[Any] = []
    if reader.goes_on_with("]"):
        return items
    while True:
        items.append(reader.value())
        if len(items) % ROWS_A_TURN == 0:
            await asyncio.sleep(0)
        if not reader.goes_on_with(","):
            break
    reader.expect("]")
    return items


class _Reader:
    """A place in a text. Spaces before what is read are passed over."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def goes_on_with(self, symbol: str) -> bool:
        """Whether this symbol comes next; if so, go on behind it."""
        self._pass_spaces()
        found = self.text.startswith(symbol, self.at)
        self.at += found
        return found

    def expect(self, symbol: str) -> None:
        if not self.goes_on_with(symbol):
            raise ValueError(f"expected '{symbol}' at character {self.at}")

    def expect_end(self) -> None:
        self._pass_spaces()
        if self.at < len(self.text):
            raise ValueError(f"expected nothing more at character {self.at}")

    def value(self) -> Any:
        self._pass_spaces()
        value, self.at = DECODER.raw_decode(self.text, self.at)
        return value

    def _pass_spaces(self) -> None:
        passed = SPACE.match(self.text, self.at)
        self.at = self.at if passed is None else passed.end()
