"""Arguments of queues, exchanges and bindings on the command line: `--argument x-max-length=10`."""

from __future__ import annotations

import json
from typing import Any

import click

from warren.client.api import Row


class KeyValue(click.ParamType[tuple[str, object]]):
    """KEY=VALUE. The value is JSON if it can be read as such, else a text."""

    name = "KEY=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, object]:
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"not KEY=VALUE: {value!r}", param, ctx)
        try:
            return key, json.loads(text)
        except ValueError:
            return key, text


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
    """Any JSON; what cannot be read as such is a text."""

    name = "VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            content: object = json.loads(value)
        except ValueError:
            return value
        return content


arguments_option = click.option(
    "--argument",
    "arguments",
    type=KeyValue(),
    multiple=True,
    metavar="KEY=VALUE",
    help="an argument, such as x-max-length=10; may be given several times",
)
