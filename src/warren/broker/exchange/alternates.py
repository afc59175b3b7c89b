"""Which exchanges of a vhost name which as their alternate. One may be named that is not there (yet)."""

from __future__ import annotations

from collections.abc import Collection

from warren.broker.binding import BindingSource
from warren.broker.exchange.exchange import Exchange


class Alternates:
    def __init__(self) -> None:
        self.names: dict[Exchange, str] = {}
        self.followers: dict[str, dict[Exchange, None]] = {}

    def follow(self, exchange: Exchange, name: str | None) -> None:
        """From now on this is the name of its alternate."""
        before = self.names.pop(exchange, None)
        if before is not None:
            del self.followers[before][exchange]
            if not self.followers[before]:
                del self.followers[before]
        if name is not None:
            self.names[exchange] = name
            self.followers.setdefault(name, {})[exchange] = None

    def of(self, exchange: BindingSource) -> Collection[Exchange]:
        """Those whose alternate it is."""
        return self.followers.get(exchange.name, ())
