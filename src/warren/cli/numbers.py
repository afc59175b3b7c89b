"""Numbers and URIs on the command line, and what is said of those that are wrong."""

from __future__ import annotations

from typing import Any

import click

from warren.client.uri import Uri, parse_uri

UINT16_MAX = 2**16 - 1
UINT31_MAX = 2**31 - 1
SECONDS_MAX = 366 * 24 * 3600


class Whole(click.ParamType[int]):
    """A whole number in a range."""

    name = "N"

    def __init__(self, low: int = 0, high: int | None = None) -> None:
        self.low = low
        self.high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        within = text.isdecimal() and int(text) >= self.low and (self.high is None or int(text) <= self.high)
        if not within:
            least = f" of at least {self.low}" if self.low else ""
            of = least if self.high is None else f" from {self.low} to {self.high}"
            self.fail(f"not a whole number{of}: {text!r}", param, ctx)
        return int(text)


class Seconds(click.ParamType[float]):
    name = "SECONDS"

    def __init__(self, low: float = 0.0) -> None:
        self.low = low

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not self.low <= number <= SECONDS_MAX:
            least = f" of at least {self.low}" if self.low else ""
            self.fail(f"not a number of seconds{least}: {value!r}", param, ctx)
        return number


class AmqpUri(click.ParamType[Uri]):
    name = "URI"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Uri:
        if isinstance(value, Uri):
            return value
        try:
            return parse_uri(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


count = Whole(0, UINT31_MAX)
positive = Whole(1, UINT31_MAX)
seconds = Seconds()
