"""The alternate exchanges of a vhost: which exchange names which. The one that is named need not exist."""

from __future__ import annotations

from collections.abc import Collection

from warren.broker.binding import BindingSource
from warren.broker.exchange.exchange import Exchange


class Alternates:
    def __init__(self) -> None:
        self.names: dict[Exchange, str] = {}  # the alternate that an exchange names
        self.followers: dict[str, dict[Exchange, None]] = {}  # the exchanges that name an alternate

    def follow(self, exchange: Exchange, name: str | None) -> None:
        """Set the name of an exchange's alternate; None if it has none."""
        before = self.names.pop(exchange, None)
        if before is not None:
            del self.followers[before][exchange]
            if not self.followers[before]:
                del self.followers[before]
        if name is not None:
            self.names[exchange] = name
            self.followers.setdefault(name, {})[exchange] = None

    def of(self, exchange: BindingSource) -> Collection[Exchange]:
        """The exchanges that name this one as their alternate."""
        return self.followers.get(exchange.name, ())
