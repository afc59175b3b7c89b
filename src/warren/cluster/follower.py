"""A follower of a shard: it opens sessions, applies what the leader sends, acks what is synced.

A session begins with the follower's inventory. The follower takes batches of its newest session only, one
number after the other; a gap makes it begin anew. Batches of older sessions may still be on their way after
a reconnect, and would cut off what was acked since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from warren.cluster.beacons import Patience
from warren.cluster.config import StoreId
from warren.cluster.effects import Apply, Send, TakeInventory
from warren.cluster.home import Home
from warren.cluster.messages import Ack, Batch, Inventory
from warren.cluster.settings import INVENTORY_SEGMENTS_MAX
from warren.storage.replication import LogId, SegmentState

NO_SESSION = 0


class Unsynced(NamedTuple):
    """A batch that is on its way to the disk."""

    token: int
    to: StoreId  # who waits for the ack
    ack: Ack


class Follower:
    __slots__ = (
        "active_at",
        "applied",
        "epoch",
        "home",
        "is_whole",
        "leader",
        "not_before",
        "patience",
        "session",
        "shard",
        "unsynced",
        "was_in_step",
    )

    def __init__(self, home: Home, shard: int, now: float) -> None:
        self.home = home
        self.shard = shard
        self.epoch = 0  # in which it follows
        self.leader: StoreId | None = None  # of that epoch, as far as is known
        self.session = NO_SESSION
        self.applied = 0  # the number of the last batch in this session
        self.was_in_step = False  # in this session, when it got that batch
        self.active_at = now  # when it last heard something in this session
        self.not_before = now  # when it may open a session again that was refused
        self.unsynced: deque[Unsynced] = deque()
        self.is_whole = True  # no damaged segment was found
        self.patience = Patience(home.settings.grace, now)

    # --- whom it follows ---

    def follow(self, leader: StoreId | None, epoch: int, now: float) -> None:
        """Another leader, or another epoch, is known."""
        if (leader, epoch) == (self.leader, self.epoch):
            return
        if epoch != self.epoch:
            self.unsynced.clear()
        self.leader = leader
        self.epoch = epoch
        self.session = NO_SESSION
        self.not_before = now
        self.open(now)

    def open(self, now: float) -> None:
        """Open a session, if there is a leader that can be spoken to."""
        if self.session != NO_SESSION or self.leader not in self.home.links or now < self.not_before:
            return
        if self.leader == self.home.me.store:
            return
        self.session = self.home.new_session()
        self.applied = 0
        self.was_in_step = False
        self.active_at = now
        self.home.effects.append(TakeInventory(self.shard, self.session))

    def close(self, now: float, *, wait: float = 0.0) -> None:
        """The session is over: its link has ended, or the leader does not want it."""
        self.session = NO_SESSION
        self.was_in_step = False
        self.not_before = now + wait

    def inventory_taken(
        self, session: int, logs: Sequence[tuple[LogId, Sequence[SegmentState]]], now: float
    ) -> None:
        """The disk has said what the store has."""
        self.is_whole = not any(segment.damaged for _, segments in logs for segment in segments)
        if session != self.session or self.leader is None:
            return
        self.active_at = now
        for page, is_last in _pages(logs):
            message = Inventory(self.shard, self.epoch, session, page, is_last)
            self.home.effects.append(Send(self.leader, message))

    # --- what the leader sends ---

    def batch(self, sender: StoreId, batch: Batch, now: float) -> None:
        """Apply a batch, if it is the next one of the session."""
        home = self.home
        if home.rules.one_session:
            if batch.session != self.session or sender != self.leader:
                return
            if batch.number != self.applied + 1:
                self.close(now)
                self.open(now)
                return
        self.applied = batch.number
        self.active_at = now
        self.patience.hear(now)
        if batch.in_step:
            self.was_in_step = True
            self.is_whole = True  # a damaged segment was sent anew
        token = home.next_token()
        ack = Ack(self.shard, batch.epoch, batch.session, batch.number)
        home.effects.append(Apply(self.shard, batch.epoch, batch.changes, token))
        if home.rules.sync_before_ack:
            self.unsynced.append(Unsynced(token, sender, ack))
        else:
            home.acks.setdefault(sender, {})[self.shard] = ack

    def synced(self, token: int) -> None:
        """All that was applied up to this token is synced."""
        unsynced = self.unsynced
        last: Unsynced | None = None
        while unsynced and unsynced[0].token <= token:
            last = unsynced.popleft()
        if last is not None and last.to in self.home.links:
            self.home.acks.setdefault(last.to, {})[self.shard] = last.ack

    def tick(self, now: float) -> None:
        """Begin anew if the leader has forgotten this session."""
        silent = now - self.active_at > self.home.settings.session_silence
        if self.session != NO_SESSION and silent and not self.was_in_step:
            self.close(now)
        self.open(now)


def _pages(
    logs: Sequence[tuple[LogId, Sequence[SegmentState]]],
) -> list[tuple[tuple[tuple[LogId, tuple[SegmentState, ...]], ...], bool]]:
    """An inventory in pages of a bounded size; a log may go on in the next page."""
    pages: list[list[tuple[LogId, tuple[SegmentState, ...]]]] = [[]]
    room = INVENTORY_SEGMENTS_MAX
    for log, segments in logs:
        rest = tuple(segments)
        while True:
            if room <= 0:
                pages.append([])
                room = INVENTORY_SEGMENTS_MAX
            part, rest = rest[:room], rest[room:]
            pages[-1].append((log, part))
            room -= len(part) + 1
            if not rest:
                break
    return [(tuple(page), number == len(pages)) for number, page in enumerate(pages, 1)]
