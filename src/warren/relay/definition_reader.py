"""How the fields of a relay's definition are read: those of shovels, and of upstreams of federation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table
from warren.broker.parameters import Json
from warren.client.uri import without_password
from warren.relay.ends import End, read_end

URIS_MAX = 100
PREFETCH_DEFAULT, PREFETCH_MAX = 1_000, 65_535
RECONNECT_SECONDS_DEFAULT, RECONNECT_SECONDS_MAX = 5.0, 1e9
NO_NAMES: Mapping[str, str] = {}


class DefinitionReader:
    """Takes fields out of a definition. Whatever makes no sense is 406, and so is what is left at the end."""

    def __init__(self, what: str, value: Json, old_names: Mapping[str, str] = NO_NAMES) -> None:
        if not isinstance(value, dict):
            raise PreconditionFailed(f"{what}: expected an object")
        self.what = what  # for errors
        self.fields: dict[str, Json] = {old_names.get(key, key): given for key, given in value.items()}

    def wrong(self, key: str, what: str) -> PreconditionFailed:
        return PreconditionFailed(f"{self.what}: {without_password(key)} {without_password(what)}")

    def text(self, key: str) -> str | None:
        value = self.fields.pop(key, None)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "should be a text")
        return value

    def one_of(self, key: str, values: tuple[str, ...]) -> str:
        value = self.text(key)
        if value is not None and value not in values:
            raise self.wrong(key, f"should be one of {', '.join(values)}")
        return values[0] if value is None else value

    def flag(self, key: str) -> bool:
        value = self.fields.pop(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "should be true or false")
        return value

    def number(self, key: str, default: float, most: float) -> float:
        value = self.fields.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise self.wrong(key, f"should be a number from 0 to {most:g}")
        return value

    def whole_number(self, key: str, least: int, most: int) -> int | None:
        """None if it is not given."""
        value = self.fields.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"should be a whole number from {least} to {most}")
        return value

    def prefetch_count(self, key: str) -> int:
        return int(self.number(key, PREFETCH_DEFAULT, PREFETCH_MAX))

    def reconnect_seconds(self) -> float:
        return self.number("reconnect-delay", RECONNECT_SECONDS_DEFAULT, RECONNECT_SECONDS_MAX)

    def table(self, key: str) -> Table:
        value = self.fields.pop(key, None)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "should be an object")
        return cast("Table", value or {})

    def ends(self, key: str, vhost: str = "/") -> tuple[End, ...]:
        """Brokers, as URIs name them. `read_end` says what the vhosts are."""
        value = self.fields.pop(key, None)
        texts = value if isinstance(value, list) else [value]
        if not texts or len(texts) > URIS_MAX or not all(isinstance(text, str) for text in texts):
            raise self.wrong(key, "should be an AMQP URI, or a list of some")
        try:
            return tuple(read_end(cast("str", text), vhost) for text in texts)
        except ValueError as error:
            raise self.wrong(key, f"is wrong: {error}") from None

    def expect_nothing(self) -> None:
        for key in self.fields:
            raise self.wrong(key, "is not known")
