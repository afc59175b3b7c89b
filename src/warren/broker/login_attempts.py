"""How often clients tried to log in, by protocol, and by address and user."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

SOURCES_MAX = 10_000
AMQP, HTTP = "amqp091", "http"  # RabbitMQ's names of the protocols


class Source(NamedTuple):
    """Who tried to log in."""

    protocol: str
    remote_address: str
    user: str


@dataclass
class Attempts:
    succeeded: int = 0
    failed: int = 0

    def note(self, *, succeeded: bool) -> None:
        if succeeded:
            self.succeeded += 1
        else:
            self.failed += 1


class LoginAttempts:
    """Counts since the start, or since the last `reset`. Of the sources, those of the latest attempts are
    kept, at most `SOURCES_MAX`.
    """

    def __init__(self) -> None:
        self.by_protocol: dict[str, Attempts] = {}
        self.by_source: OrderedDict[Source, Attempts] = OrderedDict()

    def note(self, protocol: str, remote_address: str, user: str, *, succeeded: bool) -> None:
        self.by_protocol.setdefault(protocol, Attempts()).note(succeeded=succeeded)
        source = Source(protocol, remote_address, user)
        self.by_source.setdefault(source, Attempts()).note(succeeded=succeeded)
        self.by_source.move_to_end(source)
        if len(self.by_source) > SOURCES_MAX:
            self.by_source.popitem(last=False)

    def reset(self) -> None:
        self.by_protocol.clear()
        self.by_source.clear()
