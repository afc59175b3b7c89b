"""The parts of a test in which consumers of every kind come and go: a queue's arguments, its messages, and
the consumers.
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
    limit: int | None  # of deliveries
    priority: int  # the highest level
    single: bool  # whether there is a single active consumer
    ttl_ms: int | None
    once: bool  # whether duplicates are dropped

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
    """What the test knows of a message."""

    number: int
    level: int  # of priority
    group: int | None
    n: int  # a header, for selectors
    persistent: bool
    due_ms: int | None  # when it expires
    state: str = "in"  # in, out, or how it left the queue
    holder: object = None  # the consumer that it is out with
    delivered: bool = False  # whether it was delivered before
    returned: int = 0  # how often
    waits_until_ms: int = 0  # for its retry
    rejected: bool = False


@dataclass(eq=False)
class Taker:
    """A consumer, with a connection of its own."""

    client: Client
    kind: str
    prefetch: int
    no_ack: bool
    below: int
    priority: int
    consumes: bool = True
    out: dict[int, Record] = field(default_factory=dict)  # by delivery tag
    seen: dict[int, int] = field(default_factory=dict)  # of a browser: by level, the last number
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
