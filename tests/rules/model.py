"""A model of a queue with rules, made of plain lists, to compare a real queue with.

A message is ready, out with a client, or waiting for its retry. A turn makes messages ready whose delay is
over, delivers, expires, and drops messages above the length limits, in this order. `deaths` is a list of
groups, in order; within a group the order is open, since its messages expire at the same time.

A message that was returned before a restart is ready until a consumer could take it. Then it waits for its
delay, which began with the restart; or it dies, if it was returned too often. Once is not too often, since
after a power cut every message counts as returned once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import chain


class State(Enum):
    READY = auto()
    OUT = auto()
    WAITING = auto()
    DONE = auto()


@dataclass(frozen=True, kw_only=True)
class ModelRules:
    """None stands for no limit."""

    durable: bool
    ttl_ms: int | None = None
    length: int | None = None
    length_bytes: int | None = None
    overflow: str = "drop-head"
    priority: int = 0
    delivery_limit: int | None = None
    retry_min_ms: int | None = None
    retry_max_ms: int = 24 * 3600 * 1000


@dataclass(eq=False)
class Copy:
    number: int
    level: int
    size: int
    persistent: bool
    expires_ms: int | None
    returned: int = 0
    state: State = State.READY
    due_ms: int = 0
    restored: bool = False
    consumer: ModelConsumer | None = None

    def is_over(self, now_ms: int) -> bool:
        return self.expires_ms is not None and self.expires_ms <= now_ms


@dataclass(eq=False)
class ModelConsumer:
    prefetch: int
    no_ack: bool


Death = tuple[int, str]


@dataclass
class QueueModel:
    rules: ModelRules
    now_ms: int
    copies: list[Copy] = field(default_factory=list)
    consumer: ModelConsumer | None = None
    deaths: list[list[Death]] = field(default_factory=list)
    restored_ms: int = 0

    def those(self, *states: State) -> list[Copy]:
        """The messages in one of these states, in the order of the queue."""
        found = [copy for copy in self.copies if copy.state in states]
        return sorted(found, key=lambda copy: (-copy.level, copy.number))

    @property
    def ready(self) -> list[Copy]:
        return self.those(State.READY)

    # --- what clients do ---

    def publish(self, copy: Copy) -> bool:
        """Add a message, whose TTL may be lowered by the queue's; whether the queue takes it."""
        ttl = self.rules.ttl_ms
        if ttl is not None:
            ends = self.now_ms + ttl
            copy.expires_ms = ends if copy.expires_ms is None else min(ends, copy.expires_ms)
        copy.level = min(copy.level, self.rules.priority)
        if self.rules.overflow != "drop-head" and self.is_beyond(copy) and not self.goes_straight_through():
            if self.rules.overflow == "reject-publish-dlx":
                self.deaths.append([(copy.number, "maxlen")])
            return False
        self.copies.append(copy)
        return True

    def goes_straight_through(self) -> bool:
        return not self.ready and self.can_deliver()

    def take(self) -> Copy | None:
        """The next message for basic.get."""
        gone: list[Death] = []
        self.weed(gone)
        self.deaths.append(gone)
        return self.ready[0] if self.ready else None

    def go_out(self, copy: Copy, *, no_ack: bool) -> None:
        copy.restored = False
        copy.state = State.DONE if no_ack else State.OUT

    def give_back(self, copy: Copy) -> None:
        copy.returned += 1
        copy.consumer = None
        limit = self.rules.delivery_limit
        if limit is not None and copy.returned > limit:
            self.die(copy, "delivery_limit")
        elif copy.is_over(self.now_ms):
            self.die(copy, "expired")
        else:
            self.delay(copy)

    def delay(self, copy: Copy) -> None:
        copy.state = State.READY
        if self.rules.retry_min_ms is not None:
            copy.state = State.WAITING
            copy.due_ms = self.now_ms + self.delay_ms(copy)

    def delay_ms(self, copy: Copy) -> int:
        least = self.rules.retry_min_ms
        return 0 if least is None else min(least * 2 ** (copy.returned - 1), self.rules.retry_max_ms)

    def die(self, copy: Copy, reason: str) -> None:
        copy.state = State.DONE
        self.deaths.append([(copy.number, reason)])

    def purge(self) -> int:
        purged = self.those(State.READY, State.WAITING)
        for copy in purged:
            copy.state = State.DONE
        return len(purged)

    # --- what the queue does ---

    def turn(self) -> list[Copy]:
        """One turn; the messages that it delivers, in order."""
        for copy in self.those(State.WAITING):
            if copy.due_ms <= self.now_ms:
                copy.state = State.READY
        gone: list[Death] = []
        delivered = self.deliver(gone)
        for copy in self.ready:
            if copy.is_over(self.now_ms):
                self.leave(copy, "expired", gone)
        self.deaths.append(gone)
        while self.rules.overflow == "drop-head" and self.is_beyond():
            self.die(self.ready[0], "maxlen")
        return delivered

    def leave(self, copy: Copy, reason: str, gone: list[Death]) -> None:
        copy.state = State.DONE
        gone.append((copy.number, reason))

    def deliver(self, gone: list[Death]) -> list[Copy]:
        delivered: list[Copy] = []
        while self.consumer is not None:
            self.weed(gone)
            if not self.ready or not self.can_deliver():
                break
            copy = self.ready[0]
            copy.consumer = self.consumer
            self.go_out(copy, no_ack=self.consumer.no_ack)
            delivered.append(copy)
        return delivered

    def weed(self, gone: list[Death]) -> None:
        """Remove messages from the head until the first one may be delivered."""
        limit = self.rules.delivery_limit
        while self.ready:
            copy = self.ready[0]
            if copy.is_over(self.now_ms):
                self.leave(copy, "expired", gone)
            elif copy.restored and limit is not None and copy.returned > max(limit, 1):
                self.leave(copy, "delivery_limit", gone)
            elif copy.restored and copy.returned and self.restored_ms + self.delay_ms(copy) > self.now_ms:
                copy.state, copy.due_ms = State.WAITING, self.restored_ms + self.delay_ms(copy)
            else:
                return

    def can_deliver(self) -> bool:
        if self.consumer is None:
            return False
        held = sum(copy.consumer is self.consumer for copy in self.those(State.OUT))
        return self.consumer.no_ack or not self.consumer.prefetch or held < self.consumer.prefetch

    def is_beyond(self, *more: Copy) -> bool:
        copies = [*self.ready, *more]
        rules = self.rules
        if rules.length is not None and len(copies) > rules.length:
            return True
        return rules.length_bytes is not None and sum(copy.size for copy in copies) > rules.length_bytes

    def advance(self, until_ms: int) -> list[Copy]:
        """Let time pass, with a turn whenever something is due; the messages that are delivered."""
        delivered = []
        while True:
            due = self.next_due()
            if due is None or due > until_ms:
                break
            self.now_ms = max(due, self.now_ms)
            delivered += self.turn()
        self.now_ms = until_ms
        return delivered

    def next_due(self) -> int | None:
        ready = (copy.expires_ms for copy in self.ready if copy.expires_ms is not None)
        waiting = (copy.due_ms for copy in self.those(State.WAITING))
        return min(chain(ready, waiting), default=None)

    # --- the broker ends and comes back ---

    def lose_clients(self, *, cleanly: bool) -> None:
        """Every message that is out returns: by the rules, or, if the broker was killed, with its restart."""
        self.consumer = None
        for copy in self.those(State.OUT):
            if cleanly:
                self.give_back(copy)
            else:
                copy.returned += 1
                copy.state, copy.consumer = State.READY, None

    def come_back(self) -> None:
        """The broker starts again, with the persistent messages."""
        self.restored_ms = self.now_ms
        self.copies = [copy for copy in self.copies if copy.persistent]
        for copy in self.those(State.READY, State.WAITING):
            copy.state, copy.restored = State.READY, True
