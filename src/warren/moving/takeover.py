"""Takes a RabbitMQ over: its definitions, then the messages of its queues, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from warren.client.api import Api, ApiError, Row, Unreachable
from warren.client.uri import Uri
from warren.moving.drain import BATCH, Drain, Moved
from warren.moving.queues import STREAM, QueueInfo, by_name, differences, queues_in, queues_of

LOOK_SECONDS, LOOKS_MAX = 2.5, 12
"""RabbitMQ renews the figures of its management API every five seconds, or later if it is busy."""

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


@dataclass
class Taken:
    """A queue, and how far its takeover has come."""

    there: QueueInfo
    here: QueueInfo | None
    """The queue of that name here; None if there is none."""
    reason: str | None
    """Why its messages are not moved; None if they are."""
    result: Moved
    unacked: int = 0
    """Messages that are out with consumers of the source, as it said last."""

    @property
    def key(self) -> tuple[str, str]:
        return self.there.vhost, self.there.name

    def report(self) -> QueueReport:
        notes = differences(self.there, self.here) + notes_of(self.result)
        if self.reason:
            notes.append(self.reason)
        if self.unacked:
            notes.append(f"messages that are out with consumers there: {self.unacked}")
        is_well = not (self.result.left or self.result.problem or self.unacked)
        return QueueReport(*self.key, self.result.moved, self.result.left, "; ".join(notes), is_well)


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
    ) -> None:
        self.trouble = ""  # what went wrong at the end, when there are rows to show already
        self._plan = plan
        self._source = source  # the RabbitMQ's management API
        self._source_amqp = source_amqp  # the same broker over AMQP, in any vhost
        self._to = to  # our HTTP API
        self._to_amqp = to_amqp  # the same broker over AMQP, in any vhost
        self._progress = progress  # shows a line about how far we are
        self._moved = 0  # messages so far
        self._place = ""  # the queue that is being moved

    def run(self) -> list[QueueReport]:
        if self._plan.with_definitions:
            self._progress("definitions")
            self._to.post("definitions", *self._vhosts(), content=self._definitions())
        queues = self._queues()
        here = by_name(queues_of(self._to, self._plan.vhost))
        taken: list[Taken] = []
        for vhost in dict.fromkeys(queue.vhost for queue in queues):
            of_vhost = [queue for queue in queues if queue.vhost == vhost]
            taken += self._take_vhost(vhost, of_vhost, here, done=len(taken), total=len(queues))
        try:
            self._look_again(taken)
        except (ApiError, Unreachable) as error:
            self.trouble = f"whether anything is left there is not known: {error}"
        return [each.report() for each in taken]

    def _look_again(self, taken: Iterable[Taken]) -> None:
        """Look until the source itself says that nothing is left. Its figures are some seconds old. Messages
        come back to their queues when a consumer, or an import that was killed, lets go of them.
        """
        moved = {each.key: each for each in taken if each.reason is None and not each.result.problem}
        looks = LOOKS_MAX if self._source is not None and moved else 0
        for _ in range(looks):
            left = self._left_in(moved)
            if not left:
                return
            self._progress(f"{len(left)} queues are not empty by the figures there: looking again")
            time.sleep(LOOK_SECONDS)
            for each in left:
                with self._drain(each.there.vhost) as drain:
                    each.result.add(drain.move(each.there.name))

    def _left_in(self, moved: Mapping[tuple[str, str], Taken]) -> list[Taken]:
        """Those of these queues that have messages, by the figures of the source."""
        assert self._source is not None, "there is somebody to ask"
        left = []
        for queue in queues_of(self._source, self._plan.vhost):
            each = moved.get((queue.vhost, queue.name))
            if each is not None:
                each.unacked = queue.unacked
                left += [each] if queue.messages else []
        return left

    def _drain(self, vhost: str) -> Drain:
        source, to = replace(self._source_amqp, vhost=vhost), replace(self._to_amqp, vhost=vhost)
        return Drain(source, to, self._count, batch=self._plan.batch)

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
    ) -> list[Taken]:
        taken = []
        with self._drain(vhost) as drain:
            for number, queue in enumerate(queues, done + 1):
                self._place = f"queue {number} of {total}, {queue.name}"
                self._count(0)
                taken.append(self._take(drain, queue, here.get((vhost, queue.name))))
        return taken

    def _take(self, drain: Drain, there: QueueInfo, here: QueueInfo | None) -> Taken:
        reason = self._why_not(there, here)
        if reason is None:
            result = drain.move(there.name)
        else:
            result = Moved(left=there.messages if self._plan.with_messages else 0)
        return Taken(there, here, reason, result)

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


def notes_of(result: Moved) -> list[str]:
    notes = []
    if result.rerouted:
        notes.append(f"messages that now come from the exchange warren.import…: {result.rerouted}")
    if result.problem:
        notes.append(result.problem)
    return notes
