"""Who and what is on the stage when consumers of every kind come and go: a queue as it was declared, its
messages, and those who take them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.rules.stage import TO_DEAD, Client
from warren.amqp.table import Table

RETRY_MS = 1011


@dataclass(frozen=True, kw_only=True)
class Declared:
    durable: bool
    grouped: bool
    retry: bool
    limit: int | None
    priority: int
    single: bool
    ttl_ms: int | None
    once: bool

    def arguments(self) -> Table:
        said: Table = {
            "x-group-header": "g" if self.grouped else None,
            "x-retry-delay-min": RETRY_MS if self.retry else None,
            "x-delivery-limit": self.limit,
            "x-max-priority": self.priority or None,
            "x-single-active-consumer": self.single or None,
            "x-message-ttl": self.ttl_ms,
            "x-message-deduplication": self.once or None,
        }
        return {**TO_DEAD, **{name: value for name, value in said.items() if value is not None}}


@dataclass
class Record:
    """A message: `state` is in, out, or what became of it."""

    number: int
    level: int
    group: int | None
    n: int
    persistent: bool
    due_ms: int | None
    state: str = "in"
    holder: object = None
    delivered: bool = False
    returned: int = 0
    waits_until_ms: int = 0
    rejected: bool = False


@dataclass(eq=False)
class Taker:
    """A consumer, with a connection of its own. `out` has the record of each delivery tag."""

    client: Client
    kind: str
    prefetch: int
    no_ack: bool
    below: int
    priority: int
    consumes: bool = True
    out: dict[int, Record] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)  # of one that browses, by level the last number
    firsts: dict[tuple[int, int | None], int] = field(default_factory=dict)

    @property
    def takes(self) -> bool:
        return self.kind != "browser"

    @property
    def is_able(self) -> bool:
        return self.consumes and (self.no_ack or not self.prefetch or len(self.out) < self.prefetch)

    def arguments(self) -> Table:
        said: Table = {"x-priority": self.priority}
        if self.kind == "browser":
            said["x-browse"] = True
        if self.kind == "selector":
            said["x-selector"] = f"n < {self.below}"
        return said

    def wants(self, record: Record) -> bool:
        return self.kind != "selector" or record.n < self.below
