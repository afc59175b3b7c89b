"""Takes a RabbitMQ over: its definitions, then the messages of its queues, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from warren.client.api import Api, ApiError, Row, Unreachable
from warren.client.uri import Uri
from warren.moving.drain import BATCH, Drain, Moved
from warren.moving.queues import STREAM, QueueInfo, by_name, differences, queues_in, queues_of

STATISTICS_SECONDS = 7.0
"""RabbitMQ renews the figures of its management API every five seconds, unless it is set otherwise."""

USERS = ("users", "permissions", "topic_permissions")


@dataclass(frozen=True)
class Plan:
    """What to take over."""

    vhost: str | None = None
    """Only this vhost; None for all."""
    definitions: Row | None = None
    """Of a file; None if the source is to be asked."""
    with_definitions: bool = True
    """Whether to take over definitions; without, every queue has to be here already."""
    with_users: bool = True
    """Whether users and permissions are among the definitions."""
    with_messages: bool = True
    """Whether to move messages."""
    batch: int = BATCH
    """How many messages are in flight at most, and so may be in both brokers after a kill."""


@dataclass(frozen=True)
class QueueReport:
    """A line of the final table."""

    vhost: str
    queue: str
    moved: int
    """Messages that this run has moved."""
    left: int
    """Messages that are still there."""
    differences: str
    """What is not the same here, and why messages are left, in words."""
    is_well: bool
    """Whether nothing is left, and no error came up."""

    def as_json(self) -> Row:
        return {
            "vhost": self.vhost,
            "queue": self.queue,
            "moved": self.moved,
            "left": self.left,
            "differences": self.differences,
        }


class Takeover:
    """`source` is None if all is known from a file of definitions."""

    def __init__(
        self,
        plan: Plan,
        *,
        source: Api | None,
        source_amqp: Uri,
        to: Api,
        to_amqp: Uri,
        progress: Callable[[str], None],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.trouble = ""  # what went wrong at the end, when there are rows to show already
        self._plan = plan
        self._source = source  # the RabbitMQ's management API
        self._source_amqp = source_amqp  # the same broker over AMQP, in any vhost
        self._to = to  # our HTTP API
        self._to_amqp = to_amqp  # the same broker over AMQP, in any vhost
        self._progress = progress  # shows a line about how far we are
        self._wait = wait  # for so many seconds
        self._moved = 0  # messages so far
        self._place = ""  # the queue that is being moved

    def run(self) -> list[QueueReport]:
        if self._plan.with_definitions:
            self._progress("definitions")
            self._to.post("definitions", *self._vhosts(), content=self._definitions())
        queues = self._queues()
        here = by_name(queues_of(self._to, self._plan.vhost))
        rows: list[QueueReport] = []
        for vhost in dict.fromkeys(queue.vhost for queue in queues):
            of_vhost = [queue for queue in queues if queue.vhost == vhost]
            rows += self._take_vhost(vhost, of_vhost, here, done=len(rows), total=len(queues))
        unacked = self._unacked_there() if self._plan.with_messages else {}
        return [with_unacked(row, unacked.get((row.vhost, row.queue), 0)) for row in rows]

    def _unacked_there(self) -> dict[tuple[str, str], int]:
        """How many messages of queues are out with consumers of the source, and so were not moved. Its
        figures are some seconds old: if there are any, they may be those of our own consumers, and we look
        again.
        """
        if self._source is None:
            return {}
        try:
            found = self._count_unacked(self._source)
            if found:
                self._progress("messages are out with consumers: waiting for new figures")
                self._wait(STATISTICS_SECONDS)
                found = self._count_unacked(self._source)
        except (ApiError, Unreachable) as error:
            self.trouble = f"whether messages are out with consumers there is not known: {error}"
            return {}
        return found

    def _count_unacked(self, source: Api) -> dict[tuple[str, str], int]:
        queues = queues_of(source, self._plan.vhost)
        return {(queue.vhost, queue.name): queue.unacked for queue in queues if queue.unacked}

    def _vhosts(self) -> tuple[str, ...]:
        return () if self._plan.vhost is None else (self._plan.vhost,)

    def _definitions(self) -> Row:
        definitions = self._plan.definitions
        if definitions is None:
            assert self._source is not None, "without a source there is a file"
            definitions = dict(self._source.get("definitions", *self._vhosts()))
        left_out = () if self._plan.with_users else USERS
        return {name: value for name, value in definitions.items() if name not in left_out}

    def _queues(self) -> list[QueueInfo]:
        """The queues of the source; those that are not in its definitions, such as exclusive ones,
        included.
        """
        if self._source is not None:
            return list(queues_of(self._source, self._plan.vhost))
        return list(queues_in(self._plan.definitions or {}, self._plan.vhost))

    def _take_vhost(
        self,
        vhost: str,
        queues: Iterable[QueueInfo],
        here: dict[tuple[str, str], QueueInfo],
        *,
        done: int,
        total: int,
    ) -> list[QueueReport]:
        source, to = replace(self._source_amqp, vhost=vhost), replace(self._to_amqp, vhost=vhost)
        rows = []
        with Drain(source, to, self._count, batch=self._plan.batch) as drain:
            for number, queue in enumerate(queues, done + 1):
                self._place = f"queue {number} of {total}, {queue.name}"
                self._count(0)
                rows.append(self._take(drain, queue, here.get((vhost, queue.name))))
        return rows

    def _take(self, drain: Drain, there: QueueInfo, here: QueueInfo | None) -> QueueReport:
        notes = differences(there, here)
        reason = self._why_not(there, here)
        if reason is None:
            result = drain.move(there.name)
            notes += notes_of(result)
            is_well = not result.left and not result.problem
        else:
            result = Moved(left=there.messages)
            notes += [reason] if reason else []
            is_well = not there.messages or not self._plan.with_messages
        return QueueReport(there.vhost, there.name, result.moved, result.left, "; ".join(notes), is_well)

    def _why_not(self, there: QueueInfo, here: QueueInfo | None) -> str | None:
        """Why the messages of a queue are not moved; None if they are."""
        if not self._plan.with_messages or here is None:
            return ""
        if there.type == STREAM:
            return "messages of streams are not moved"
        return "belongs to one connection there" if there.exclusive else None

    def _count(self, moved: int) -> None:
        self._moved += moved
        self._progress(f"{self._place}: {self._moved:,} messages moved")


def with_unacked(row: QueueReport, count: int) -> QueueReport:
    if not count:
        return row
    note = f"messages that are out with consumers there: {count}"
    notes = f"{row.differences}; {note}" if row.differences else note
    return replace(row, differences=notes, is_well=False)


def notes_of(result: Moved) -> list[str]:
    notes = []
    if result.rerouted:
        notes.append(f"messages that now come from the exchange warren.import…: {result.rerouted}")
    if result.problem:
        notes.append(result.problem)
    return notes
