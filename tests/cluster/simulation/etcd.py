"""A simulated etcd: requests that are lost, late, refused, or applied without an answer; late watches."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from warren.cluster.config import Known, ShardRecord
from warren.cluster.effects import CasAnswer
from warren.cluster.transactions import Outcome

LOST, UNANSWERED, LATE = 0.06, 0.1, 0.5
WATCH_LOST = 0.05
ANSWER_LATE = 0.3


BALANCER = -1  # the number of a request that no shard has made, but the balancer of a node


class Request(NamedTuple):
    node: int
    life: int  # of the node's process: an answer to a process that is gone is dropped
    shard: int
    revision: int  # that a compare-and-swap compares; 0: it is a read
    record: ShardRecord | None
    number: int = 0  # of a `ConfirmGone` that it answers, or BALANCER
    asked: int = 0  # the number of a `ReadRecord` that it answers


class Etcd:
    __slots__ = (
        "answers",
        "chance",
        "compares",
        "history",
        "is_read_only",
        "is_up",
        "late",
        "records",
        "refuses",
        "requests",
        "revision",
        "watch_loss",
        "watches",
    )

    def __init__(
        self, chance: random.Random, nodes: int, records: list[ShardRecord], *, compares: bool
    ) -> None:
        self.chance = chance
        self.compares = compares
        self.is_up = True  # else it takes requests, and answers none before it is up again
        self.is_read_only = False  # it refuses what would change something: its user has lost that right
        self.refuses: set[int] = set()  # nodes that cannot connect to it, and know that nothing was sent
        self.watch_loss = WATCH_LOST
        self.revision = len(records)
        self.records = [Known(number + 1, record) for number, record in enumerate(records)]
        self.requests: list[Request] = []
        self.answers: list[tuple[Request, CasAnswer]] = []  # that are on their way
        self.late: list[Request] = []  # whoever asked has given up on them; they may be carried out yet
        self.watches: list[deque[tuple[int, Known]]] = [deque() for _ in range(nodes)]
        self.history: list[tuple[int, ShardRecord, ShardRecord]] = []  # changes since the last check

    def swap(self, request: Request) -> None:
        """Carry out a compare-and-swap."""
        known = self.records[request.shard]
        assert request.record is not None
        if known.revision != request.revision and self.compares:
            return
        self.revision += 1
        self.records[request.shard] = Known(self.revision, request.record)
        self.history.append((request.shard, known.record, request.record))
        for watch in self.watches:
            if self.chance.random() >= self.watch_loss:
                watch.append((request.shard, self.records[request.shard]))

    def serves(self, node: int) -> bool:
        """Whether a node hears anything of etcd now."""
        return self.is_up and node not in self.refuses

    def serve(self, request: Request, *, calm: bool) -> CasAnswer | None:
        """Carry out a request. Return the answer, if there is one."""
        if request.record is not None and (self.is_read_only or request.node in self.refuses):
            return Outcome.NOT_SENT
        if request.node in self.refuses:
            return None
        chance = self.chance.random()
        if request.record is None:
            return self.records[request.shard] if calm or chance >= LOST else None
        if not calm and chance < LOST:
            if self.chance.random() < LATE:
                self.late.append(request)
            return Outcome.UNKNOWN
        self.swap(request)
        if not calm and chance < LOST + UNANSWERED:
            return Outcome.UNKNOWN
        return self.records[request.shard]
