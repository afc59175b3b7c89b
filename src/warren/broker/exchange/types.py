"""The types of exchanges that are installed."""

from __future__ import annotations

from importlib.metadata import entry_points

from warren.broker.exchange.exchange import Router

GROUP = "warren.exchange_types"


def exchange_types() -> dict[str, type[Router]]:
    """The exchange types of the broker and of other packages that are installed, by name."""
    return {point.name: point.load() for point in entry_points(group=GROUP)}
