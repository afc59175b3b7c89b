"""Simulated links: a connection keeps the order, as TCP does. It may stall in either direction, and end.

What is on its way when a connection ends is lost, or arrives before the end is noticed; with the rule of one
session switched off it may even arrive after the next connection is up.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from tests.cluster.simulation.disk import Violation
from warren.cluster.config import RunId, StoreId
from warren.cluster.messages import Batch, Message
from warren.cluster.wire import decode, encode

if TYPE_CHECKING:
    from tests.cluster.simulation.node import Node
    from tests.cluster.simulation.world import World

Item: TypeAlias = "tuple[str, StoreId, RunId] | Message"


class Line:
    """One direction of the connections between two nodes."""

    __slots__ = ("items", "lives", "receiver", "sender", "store")

    def __init__(self, sender: Node, receiver: Node) -> None:
        self.sender = sender
        self.receiver = receiver
        self.items: deque[Message | None] = deque()  # None: the link is up
        self.lives = (0, 0)  # of both processes, when the connection began
        self.store = StoreId("")  # of the sender, then


class Network:
    def __init__(self, world: World, *, as_bytes: bool) -> None:
        self.world = world
        self.as_bytes = as_bytes  # messages go through the wire's format
        self.chance: random.Random = world.chance
        self.lines: list[Line] = []  # one for each direction of each pair
        self.between: dict[tuple[int, int], Line] = {}  # the same, by sender and receiver
        self.is_connected: dict[tuple[int, int], bool] = {}  # by pair, the lower place first
        self.cuts: set[tuple[int, int]] = set()  # directions in which nothing passes

    def add_nodes(self, nodes: list[Node]) -> None:
        for sender in nodes:
            for receiver in nodes:
                if sender is not receiver:
                    line = self.between[sender.place, receiver.place] = Line(sender, receiver)
                    self.lines.append(line)
                    if sender.place < receiver.place:
                        self.is_connected[sender.place, receiver.place] = False

    def send(self, sender: Node, to: StoreId, message: Message) -> None:
        node = self.world.by_store.get(to)
        if node is None:
            return
        one, other = sender.place, node.place
        line = self.between[one, other]
        is_connected = self.is_connected[(one, other) if one < other else (other, one)]
        if is_connected and line.lives == (sender.life, node.life):
            line.items.append(decode(encode(message)) if self.as_bytes else message)

    def connect(self, a: Node, b: Node) -> None:
        """A connection comes up: each end hears of it before anything else."""
        self.is_connected[a.place, b.place] = True
        for sender, receiver in ((a, b), (b, a)):
            line = self.between[sender.place, receiver.place]
            if self.world.rules.one_session or not line.items:
                line.items.clear()
                line.items.append(None)
            else:
                stale = [item for item in line.items if type(item) is Batch]
                line.items = deque([None, *stale])
            line.lives = (sender.life, receiver.life)
            line.store = sender.store

    def may_connect(self, a: Node, b: Node) -> bool:
        pair = (a.place, b.place)
        return (
            a.is_up and b.is_up and not self.is_connected[pair] and self.cuts.isdisjoint((pair, pair[::-1]))
        )

    def is_stale(self, a: Node, b: Node) -> bool:
        """Whether one of the processes is another one than when they connected."""
        lives = self.between[a.place, b.place].lives
        return self.is_connected[a.place, b.place] and lives != (a.life, b.life)

    def disconnect(self, a: Node, b: Node) -> None:
        """The connection ends, and each end that lives hears of it."""
        if not self.is_connected[a.place, b.place]:
            return
        self.is_connected[a.place, b.place] = False
        for sender, receiver in ((a, b), (b, a)):
            line = self.between[sender.place, receiver.place]
            if self.world.rules.one_session:
                line.items.clear()
            if receiver.is_up and line.lives[1] == receiver.life:
                receiver.participant.link_down(line.store, receiver.now())
                receiver.carry_out()

    def renew(self, a: Node, b: Node) -> None:
        """The link over which one node speaks to another ends, and there is a new one. The other one's own
        link stays, so that one hears nothing of it.
        """
        line = self.between[a.place, b.place]
        assert None not in line.items, "the other one does not know yet that there is a link"
        line.items.clear()
        a.participant.link_down(b.store, a.now())
        a.participant.link_up(b.store, RunId(f"{b.store}.{b.life}"), a.now())
        a.carry_out()

    def ready(self) -> list[Line]:
        """Lines with something that can arrive."""
        time, cuts = self.world.time, self.cuts
        found = []
        for line in self.lines:
            if line.items:
                receiver = line.receiver
                if receiver.is_up and receiver.paused_until <= time and line.lives[1] == receiver.life:
                    if cuts and (line.sender.place, receiver.place) in cuts:
                        continue
                    found.append(line)
        return found

    def arrive(self, line: Line) -> None:
        """The next thing of a line arrives."""
        item, receiver = line.items.popleft(), line.receiver
        participant, now = receiver.participant, receiver.now()
        if item is None:
            run = RunId(f"{line.store}.{line.lives[0]}")
            participant.link_up(line.store, run, now)
        elif line.store in participant.node.links:
            participant.received(line.store, item, now)
            if type(item) is Batch:
                self._check_session(receiver, item)
        receiver.carry_out()

    def _check_session(self, receiver: Node, batch: Batch) -> None:
        """I18: batches of the newest session only are applied."""
        effects = receiver.participant.node.effects
        newest = receiver.newest_session.get(batch.shard)
        if batch.changes and newest != batch.session:
            for effect in effects:
                if getattr(effect, "changes", None) is batch.changes:
                    raise Violation(f"I18: {receiver.store} applies session {batch.session}, not {newest}")
