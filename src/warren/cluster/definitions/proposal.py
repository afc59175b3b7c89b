"""A change that somebody wants, from the request to the answer.

`Stage` says how far it is; `NEXT` is the table of what follows what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from warren.broker.changes import Applied
from warren.broker.commands import Command
from warren.cluster.definitions.definition import path_of
from warren.storage.definition_keys import key_of


class Stage(Enum):
    NEW = "new"
    TO_SEND = "to send"  # it changes something, by what this node knows: it waits for the next transaction
    IN_FLIGHT = "in flight"  # it is in a transaction that was sent
    TO_READ = "to read"  # nothing may be said before this node has caught up: it waits for the next read
    READING = "reading"  # it waits for the answer of a read
    BEHIND = "behind"  # it waits until this node has the changes up to a revision
    ANSWERED = "answered"


NEXT: dict[Stage, frozenset[Stage]] = {
    Stage.NEW: frozenset({Stage.TO_SEND, Stage.TO_READ, Stage.ANSWERED}),
    Stage.TO_SEND: frozenset({Stage.IN_FLIGHT, Stage.TO_READ, Stage.ANSWERED}),
    Stage.IN_FLIGHT: frozenset({Stage.TO_SEND, Stage.TO_READ, Stage.BEHIND, Stage.ANSWERED}),
    Stage.TO_READ: frozenset({Stage.READING, Stage.ANSWERED}),
    Stage.READING: frozenset({Stage.TO_READ, Stage.TO_SEND, Stage.BEHIND, Stage.ANSWERED}),
    Stage.BEHIND: frozenset({Stage.TO_SEND, Stage.ANSWERED}),
    Stage.ANSWERED: frozenset(),
}


class Asker(Enum):
    """Who wants it."""

    CLIENT = "a client"  # who waits for an answer, but not for ever
    MODEL = "the model"  # of what belongs to this node, and nobody uses any more
    KEEPER = "the keeper of definitions"  # of what an earlier run has left


class Proposal:
    def __init__(
        self,
        command: Command | None,
        asker: Asker,
        then: Callable[[Applied], None] | None,
        *,
        now: float,
        deadline: float,
        created: int = 0,
    ) -> None:
        self.command = command  # None: it only wants this node to have caught up
        self.asker = asker
        self.then = then  # is told the result
        self.path = "" if command is None else path_of(key_of(command))
        self.created = created  # the create_revision of what it is to delete, if it is to delete only that
        self.deadline = deadline  # when it is answered, whatever is known then
        self.stage = Stage.NEW
        self.since = now  # when it came into this stage
        self.sent = 0  # how often it was sent, unless that surely did not arrive
        self.overtaken = 0  # how often others got ahead of it
        self.trouble = ""  # why nobody knows what came of it when it was sent last
        self.revision = 0  # for BEHIND: what this node must have
        self.is_made = False  # for BEHIND: its transaction has succeeded, at that revision
        self.known: Applied | None = None  # for READING: what could be said by what this node knew before

    def move(self, stage: Stage, now: float) -> None:
        assert stage in NEXT[self.stage], f"{self.stage} is not followed by {stage}"
        self.stage, self.since = stage, now


@dataclass(slots=True)
class Flight:
    """A transaction that was sent."""

    proposals: list[Proposal]
    room: set[Proposal] = field(default_factory=set)  # those for which it only removes what is in their way
    swept: list[str] = field(default_factory=list)  # paths that are removed without anybody's asking
    results: dict[str, tuple[int, Applied]] = field(default_factory=dict)
    """By path: what came of its changes that this node has had meanwhile, and their revision."""
