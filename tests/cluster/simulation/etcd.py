"""A simulated etcd: requests that are lost, late or applied without an answer; watches that are late."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from warren.cluster.config import Known, ShardRecord

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


class Etcd:
    __slots__ = (
        "answers",
        "chance",
        "compares",
        "history",
        "is_up",
        "late",
        "records",
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
        self.is_up = True
        self.watch_loss = WATCH_LOST
        self.revision = len(records)
        self.records = [Known(number + 1, record) for number, record in enumerate(records)]
        self.requests: list[Request] = []
        self.answers: list[tuple[Request, Known | None]] = []  # that are on their way
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

    def serve(self, request: Request, *, calm: bool) -> tuple[bool, Known | None]:
        """Carry out a request. Whether it has an answer, and the answer; None: the outcome is not known."""
        chance = self.chance.random()
        if request.record is None:
            return (calm or chance >= LOST), self.records[request.shard]
        if not calm and chance < LOST:
            if self.chance.random() < LATE:
                self.late.append(request)
            return True, None
        self.swap(request)
        if not calm and chance < LOST + UNANSWERED:
            return True, None
        return True, self.records[request.shard]
