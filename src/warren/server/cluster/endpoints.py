"""The endpoints of etcd: the one that answered last is asked next; one that did not is left for a while."""

from __future__ import annotations

from collections.abc import Callable

AVOIDED_SECONDS = 5.0


class Endpoints:
    def __init__(self, urls: tuple[str, ...], now: Callable[[], float]) -> None:
        assert urls, "the settings have at least one endpoint"
        self.urls = [url.rstrip("/") for url in urls]  # the one to ask first is in front
        self.now = now
        self.avoided: dict[str, float] = {}  # until when

    def __len__(self) -> int:
        return len(self.urls)

    def next(self) -> str:
        """The one to ask: the first that is not avoided, or else the one that is so for the shortest time."""
        now = self.now()
        for url in self.urls:
            if self.avoided.get(url, 0.0) <= now:
                return url
        return min(self.urls, key=lambda url: self.avoided[url])

    def avoid(self, url: str) -> None:
        """It did not answer: all others are asked before it, and for a while it is not asked at all."""
        self.avoided[url] = self.now() + AVOIDED_SECONDS
        self.urls.remove(url)
        self.urls.append(url)
