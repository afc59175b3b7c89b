"""What a queue shares with the other queues of its vhost, and the protocols for parts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from warren.broker.client import Origin
from warren.broker.clock import Clock
from warren.broker.death import Reason
from warren.broker.entry import Entry
from warren.broker.events import Events
from warren.broker.memory import Memory
from warren.broker.message import Message
from warren.broker.post import Postbox, Target
from warren.broker.rota import Drainable
from warren.broker.rules import Rules
from warren.broker.store import MessageLog
from warren.broker.tally import VhostTally
from warren.broker.timers import Timers
from warren.broker.timetable import Timetable
from warren.broker.turns import Turns


class Deathbed(Protocol):
    """The queue that a message dies in, as dead-lettering knows it."""

    name: str
    rules: Rules
    deleted: bool

    def forget(self, entry: Entry) -> None: ...


class Undertaker(Protocol):
    """Sends messages that died on to their dead-letter exchanges; `DeadLetters` implements it."""

    @property
    def is_full(self) -> bool:
        """Whether so many letters stand in line that what dies should wait in its queue, if it can."""

    def bury(self, queue: Deathbed, entry: Entry, reason: Reason) -> None: ...
    def send(self, queue: Deathbed, message: Message, reason: Reason) -> None: ...
    def under_way(self, queue: Deathbed) -> set[Entry]: ...
    def sending(
        self, queue: Deathbed, entry: Entry, message: Message, targets: Sequence[Target]
    ) -> Iterator[int]: ...


class Tracer(Protocol):
    """Copies a delivery to the firehose, if that is on."""

    def __call__(self, message: Message, queue: str, origin: Origin, *, redelivered: bool) -> None: ...


def no_postbox(_vhost: str, _queue: str) -> None:
    """A node that is alone sends nothing to others."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Handed to every queue of a vhost when it is made."""

    events: Events
    touched_queues: list[Drainable]  # the queues to be drained at the end of this turn
    timers: Timers  # seconds that only go up, for flow control
    turns: Turns  # for work that is too much for one turn
    memory: Memory  # the memory budget of all queues
    clock: Clock  # the time of day
    timetable: Timetable  # calls at a time of day
    dead_letters: Undertaker
    open_overflow: Callable[[], MessageLog | None]  # a log for messages that memory has no room for
    expire: Callable[[str], None]  # delete the queue of this name, which nobody has used for too long
    trace_delivered: Tracer
    where_is: Callable[[str], str] = str  # for a user: a node of the cluster, with its address; or nothing
    postbox: Callable[[str, str], Postbox | None] = no_postbox  # for a queue on another node: vhost, name
    post_is_full: Callable[[], bool] = bool  # whether what dies should wait in its queue
    tally: VhostTally = field(default_factory=VhostTally)  # counts of the whole vhost
