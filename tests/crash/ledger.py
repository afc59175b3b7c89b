"""What clients know about every message in every queue, and whether the broker agrees after a restart.

The ledger is told what clients send before they send it and what they receive once they have it, so at any
moment it knows what must be in a queue, what may be, and what must not:

    published --confirmed--> must be there --ack sent--> may be there --proof--> must not be there
        may be there                  ^                       |
                                      '--- delivered again ---'

Only persistent messages must be there after a restart. Transient ones may be gone, but all other rules hold
for them. A proof is the answer to any synchronous method that was sent on the channel behind the ack.

There are two rules for the mark `redelivered`. What a client has received is marked when it comes again. What
was never sent to a client is not. Since the last deliveries before a kill may not reach the client, each
consumer accounts for as many marked ones as its prefetch limit allows, unless it is known to have received
all that it was sent (`close_window`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.crash.message import Delivery, Message

SHOWN_MAX = 25


class Rule(Enum):
    """What can be broken."""

    LOST = "a confirmed message that was not acked is there"
    DUPLICATED = "a message is in a queue once"
    OUT_OF_ORDER = "messages of one publisher keep their order"
    NEVER_PUBLISHED = "there is only what was published to that queue"
    CORRUPTED = "body, properties, exchange and routing key are as published"
    CAME_BACK = "what is gone for good stays away"
    NOT_MARKED = "what was delivered before is marked as redelivered"
    WRONGLY_MARKED = "what was never delivered is not marked as redelivered"
    MISCOUNTED = "the message count is that of the messages"
    UNDEFINED = "what was declared is there"
    REDEFINED = "what was deleted, or was transient, stays away"


@dataclass(frozen=True, slots=True)
class Violation:
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.text}"


class Fate(Enum):
    KEPT = auto()
    LEAVING = auto()  # an ack, or the queue's deletion, is on its way
    GONE = auto()


@dataclass(slots=True)
class Copy:
    """One message in one queue."""

    message: Message
    confirmed: bool = False
    delivered: bool = False
    delivered_unmarked: bool = False
    fate: Fate = Fate.KEPT

    @property
    def must_be_there(self) -> bool:
        return self.confirmed and self.message.persistent and self.fate is Fate.KEPT

    def __str__(self) -> str:
        words = [
            f"{self.message.body_size} bytes",
            "persistent" if self.message.persistent else "transient",
            "confirmed" if self.confirmed else "not confirmed",
            "delivered before" if self.delivered else "never delivered",
        ]
        return f"{self.message.id} ({', '.join(words)})"


@dataclass(slots=True)
class Shelf:
    """One queue.

    `copies` are by message id, in the order of publishing; of those that had gone by the last check only the
    id is remembered, in `past`. `window` is how many may have been sent to clients that never got them.
    """

    copies: dict[str, Copy] = field(default_factory=dict)
    past: set[str] = field(default_factory=set)
    window: int = 0

    def unexplained(self) -> list[Copy]:
        """Those that were first delivered with the mark, as if there had been a delivery before."""
        return [copy for copy in self.copies.values() if copy.delivered and not copy.delivered_unmarked]


class Ledger:
    """What is wrong is collected in `violations`, and not forgotten."""

    def __init__(self) -> None:
        self.shelves: dict[str, Shelf] = {}
        self.violations: list[Violation] = []

    def add_queue(self, queue: str) -> None:
        self.shelves.setdefault(queue, Shelf())

    # --- what clients do ---

    def publish(self, message: Message) -> None:
        """A message is about to be sent, or in a transaction: to be committed."""
        for queue in message.route.queues:
            self.shelves[queue].copies[message.id] = Copy(message)

    def confirm(self, message: Message) -> None:
        """The broker has taken it over."""
        for queue in message.route.queues:
            self.shelves[queue].copies[message.id].confirmed = True

    def open_window(self, queue: str, count: int) -> None:
        """A client asks for messages: up to so many may be on their way to it at a time."""
        self.shelves[queue].window += count

    def close_window(self, queue: str, count: int) -> None:
        """All that the broker had sent to that client has arrived."""
        self.shelves[queue].window -= count

    def deliver(self, queue: str, delivery: Delivery, *, late: bool = False) -> str:
        """A client received this. Gives the message's id.

        It is `late` if the channel's end had begun before it was read. Then the broker may have requeued the
        message and sent it to another client already, of which the ledger heard first.
        """
        copy = self._find(queue, delivery)
        if copy is None:
            return ""
        if not late and copy.fate is Fate.GONE:
            self._complain(Rule.CAME_BACK, queue, f"{copy} was delivered again although it had been acked")
        if copy.fate is Fate.LEAVING and not late:
            copy.fate = Fate.KEPT
        if not delivery.method.redelivered:
            if copy.delivered_unmarked:
                self._complain(Rule.NOT_MARKED, queue, f"{copy} came again as if for the first time")
            copy.delivered_unmarked = True
        copy.delivered = True
        return copy.message.id

    def leave(self, queue: str, ids: Iterable[str]) -> None:
        """Acks are about to be sent."""
        self._set_fate(queue, ids, Fate.LEAVING)

    def gone(self, queue: str, ids: Iterable[str]) -> None:
        """There is proof that the broker has handled these acks."""
        self._set_fate(queue, ids, Fate.GONE)

    def leave_all(self, queue: str) -> None:
        """The queue is about to be deleted or purged."""
        copies = self.shelves[queue].copies
        self.leave(queue, [name for name, copy in copies.items() if copy.fate is Fate.KEPT])

    def all_gone(self, queue: str) -> None:
        """The queue is deleted or purged."""
        self.gone(queue, self.shelves[queue].copies)

    def _set_fate(self, queue: str, ids: Iterable[str], fate: Fate) -> None:
        copies = self.shelves[queue].copies
        for name in ids:
            if name in copies:
                copies[name].fate = fate

    # --- what is there after a restart ---

    def check(self, queue: str, recovered: Sequence[Delivery]) -> list[str]:
        """All that was in the queue, first to last. What is there now is what is expected from now on.

        Gives the ids, an empty one for what was never published.
        """
        shelf = self.shelves[queue]
        found: dict[str, Copy] = {}
        ids = []
        for delivery in recovered:
            copy = self._find(queue, delivery)
            ids.append(copy.message.id if copy else "")
            if copy is None:
                continue
            if copy.message.id in found:
                self._complain(Rule.DUPLICATED, queue, f"{copy} is there again")
                continue
            found[copy.message.id] = copy
            self._check_found(queue, copy, redelivered=delivery.method.redelivered)
        self._check_order(queue, found.values())
        self._check_missing(queue, found)
        self._check_unexplained(queue)
        self._settle(shelf, found)
        return ids

    def check_count(self, queue: str, count: int) -> None:
        """The queue says how many it has; nobody looks at them yet."""
        copies = self.shelves[queue].copies.values()
        least = sum(copy.must_be_there for copy in copies)
        most = sum(copy.fate is not Fate.GONE for copy in copies)
        if not least <= count <= most:
            self._complain(
                Rule.MISCOUNTED, queue, f"it has {count} messages, which should be {least} to {most}"
            )

    def _check_found(self, queue: str, copy: Copy, *, redelivered: bool) -> None:
        if copy.fate is Fate.GONE:
            self._complain(Rule.CAME_BACK, queue, f"{copy} is there although it had gone for good")
        if copy.delivered and not redelivered:
            self._complain(Rule.NOT_MARKED, queue, f"{copy} is not marked as redelivered")
        copy.delivered = True
        copy.delivered_unmarked |= not redelivered

    def _check_order(self, queue: str, copies: Iterable[Copy]) -> None:
        last: dict[str, Copy] = {}
        for copy in copies:
            before = last.get(copy.message.publisher)
            if before is not None and before.message.number > copy.message.number:
                self._complain(Rule.OUT_OF_ORDER, queue, f"{copy} is behind {before}")
            last[copy.message.publisher] = copy

    def _check_missing(self, queue: str, found: dict[str, Copy]) -> None:
        for name, copy in self.shelves[queue].copies.items():
            if copy.must_be_there and name not in found:
                self._complain(Rule.LOST, queue, f"{copy} is not there")

    def _check_unexplained(self, queue: str) -> None:
        shelf = self.shelves[queue]
        marked = shelf.unexplained()
        if len(marked) > shelf.window:
            sample = ", ".join(copy.message.id for copy in marked[:10])
            limit = f"at most {shelf.window} can have been on their way to a client"
            text = f"{len(marked)} are marked that no client had received, but {limit}: {sample}"
            self._complain(Rule.WRONGLY_MARKED, queue, text)

    def _settle(self, shelf: Shelf, found: dict[str, Copy]) -> None:
        shelf.past |= shelf.copies.keys() - found.keys()
        shelf.copies = {name: copy for name, copy in shelf.copies.items() if name in found}
        for copy in found.values():
            copy.fate = Fate.KEPT
            copy.confirmed = True  # it has been read back from the disk, from where it must not go
            copy.delivered_unmarked = True
        shelf.window = 0

    def _find(self, queue: str, delivery: Delivery) -> Copy | None:
        """The copy that this is, and whether it is as it was published."""
        name = delivery.properties.message_id or ""
        copy = self.shelves[queue].copies.get(name)
        if copy is None and name in self.shelves[queue].past:
            self._complain(
                Rule.CAME_BACK, queue, f"{name} is there although it had gone before the last restart"
            )
            return None
        if copy is None:
            what = f"{len(delivery.body)} bytes, {delivery.properties}"
            self._complain(Rule.NEVER_PUBLISHED, queue, f"{name!r} was never published to it ({what})")
            return None
        for difference in copy.message.differences(delivery):
            self._complain(Rule.CORRUPTED, queue, f"{copy} was {difference}")
        return copy

    # --- the verdict ---

    def _complain(self, rule: Rule, queue: str, text: str) -> None:
        self.violations.append(Violation(rule, f"queue '{queue}': {text}"))

    def verdict(self) -> str:
        """What is wrong, in readable words; empty if nothing is."""
        if not self.violations:
            return ""
        counts = Counter(violation.rule for violation in self.violations)
        summary = [
            f"{times} times not so: {rule.value} ({rule.name})" for rule, times in counts.most_common()
        ]
        shown = [str(violation) for violation in self.violations[:SHOWN_MAX]]
        more = len(self.violations) - len(shown)
        return "\n".join([*summary, *shown, *([f"… and {more} more"] if more else [])])
