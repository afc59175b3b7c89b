"""Arguments of queues, exchanges and bindings on the command line: `--argument x-max-length=10`."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import click

from warren.amqp.properties import BasicProperties
from warren.client.api import Row

PROPERTIES = tuple(field.name for field in fields(BasicProperties))
JSON_BEGINS = ("{", "[", '"')


def read_value(text: str) -> object:
    """JSON if it can be read as such, else a text. What begins like JSON and is none is an error: most likely
    the shell has taken its quotes.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        if text.startswith(JSON_BEGINS):
            raise click.BadParameter(f"not JSON: {error}") from None
        return text


class KeyValue(click.ParamType[tuple[str, object]]):
    """KEY=VALUE. The value is as `read_value` reads it."""

    name = "KEY=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, object]:
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"not KEY=VALUE: {value!r}", param, ctx)
        return key, read_value(text)


class MessageProperty(KeyValue):
    """The same for a property of messages. The HTTP API passes over what is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, object]:
        name, given = super().convert(value, param, ctx)
        if name not in PROPERTIES:
            self.fail(f"there is no property {name!r}, only {', '.join(PROPERTIES)}", param, ctx)
        return name, given


class JsonObject(click.ParamType[Row]):
    """A JSON object, such as `{"max-length": 10}`."""

    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Row:
        try:
            content = json.loads(value)
        except ValueError as error:
            self.fail(f"not JSON: {error}", param, ctx)
        if not isinstance(content, dict):
            self.fail("not a JSON object", param, ctx)
        return dict(content)


class JsonValue(click.ParamType[object]):
    """Any value, as `read_value` reads it."""

    name = "VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        return read_value(str(value))


arguments_option = click.option(
    "--argument",
    "arguments",
    type=KeyValue(),
    multiple=True,
    metavar="KEY=VALUE",
    help="an argument, such as x-max-length=10; may be given several times",
)
