"""The walk through a classic queue: the highest priority first, and over all places where messages wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from warren.broker.entry import Entry
from warren.broker.message import Message
from warren.broker.ruled_queue import RuledQueue
from warren.broker.selector import Selector
from warren.broker.view import QueueView
from warren.broker.walk import Walk


class QueueWalk(Walk):
    """Uses a view that belongs to no consumer, so that the queue does not tell it of purges. It forgets the
    entries that it knows at the end of each turn, and goes on by position.
    """

    def __init__(
        self,
        queue: RuledQueue,
        selector: Selector | None,
        above: int,
        has_expired: Callable[[Message], bool],
    ) -> None:
        self.view = QueueView(queue, selector, takes=True)
        self.has_expired = has_expired  # expired messages are left to the queue, which buries them
        self.lanes = deque(self.view.lanes)  # those that are not walked to their ends yet
        for lane in self.lanes:
            lane.begin(above)

    def begin_turn(self, looks: int) -> None:
        self.view.begin_turn(looks)
        self.view.was_purged()

    def find(self) -> Entry | None:
        while self.lanes:
            lane = self.lanes[0]
            lane.find()
            if lane.found is None and self.view.tired:
                return None
            if lane.found is None:
                self.lanes.popleft()
            elif self.has_expired(lane.found.message):
                lane.look()
            else:
                return lane.found
        self.is_over = True
        return None

    def take(self) -> Entry | None:
        return self.lanes[0].take()

    def pass_by(self) -> None:
        self.lanes[0].look()

    def end(self) -> None:
        self.lanes.clear()
        self.view.end()
