"""A follower of a shard: it opens sessions, applies what the leader sends, acks what is synced.

A session begins with the follower's inventory. The follower takes batches of its newest session only, one
number after the other; a gap makes it begin anew. Batches of older sessions may still be on their way after
a reconnect, and would cut off what was acked since.

A store with a damaged segment gets that segment anew. Until it has it, it lacks something that was
confirmed, and must not lead. It has to know that over a restart, when what was damaged may be gone
altogether. So it notes that it is not whole, and opens no session before the note is synced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from warren.cluster.beacons import Patience
from warren.cluster.clearing import Clearing
from warren.cluster.config import StoreId
from warren.cluster.effects import Apply, KeepWhole, Send, TakeInventory
from warren.cluster.messages import Ack, Batch, Inventory
from warren.cluster.settings import INVENTORY_SEGMENTS_MAX
from warren.cluster.this_node import ThisNode
from warren.storage.replication import LogId, SegmentState

NO_SESSION = 0


class Unsynced(NamedTuple):
    """A batch that is on its way to the disk."""

    token: int
    to: StoreId  # who waits for the ack
    ack: Ack


class Follower:
    def __init__(self, node: ThisNode, shard: int, now: float) -> None:
        self.node = node  # what the shards of this node share
        self.shard = shard  # its number
        self.clearing = Clearing(node, shard)  # of copies that it does not keep any more
        self.epoch = 0  # in which it follows
        self.leader: StoreId | None = None  # of that epoch, as far as is known
        self.session = NO_SESSION  # the number of the newest one, if it is open
        self.applied = 0  # the number of the last batch in this session
        self.was_in_step = False  # in this session, when it got that batch
        self.active_at = now  # when it last heard something in this session
        self.not_before = now  # when it may open a session again that was refused
        self.unsynced: deque[Unsynced] = deque()  # batches on their way to the disk, in order
        self.is_whole = True  # no segment is damaged, or was and is not there again yet
        self.is_noted = False  # on the disk, that it is not whole
        self.note_token: int | None = None  # of the `Apply` by which that note is synced
        self.repair_token: int | None = None  # of the batch with which the store is whole again
        self.patience = Patience(node.settings.grace, now)  # with the leader

    # --- whom it follows ---

    def follow(self, leader: StoreId | None, epoch: int, now: float) -> None:
        """Another leader, or another epoch, is known."""
        if (leader, epoch) == (self.leader, self.epoch):
            return
        if epoch != self.epoch:
            self.unsynced.clear()
        self.repair_token = None
        self.leader = leader
        self.epoch = epoch
        self.session = NO_SESSION
        self.was_in_step = False
        self.not_before = now
        self.open(now)

    def open(self, now: float) -> None:
        """Open a session, if there is a leader that can be spoken to."""
        if self.session != NO_SESSION or self.leader not in self.node.links or now < self.not_before:
            return
        if self.leader == self.node.me.store or not (self.is_whole or self.is_noted):
            return
        if not self.clearing.is_idle or self.node.is_leaving:
            return
        self.session = self.node.new_session()
        self.applied = 0
        self.was_in_step = False
        self.active_at = now
        self.node.effects.append(TakeInventory(self.shard, self.session))

    def close(self, now: float, *, wait: float = 0.0) -> None:
        """The session is over: its link has ended, or the leader does not want it."""
        self.session = NO_SESSION
        self.was_in_step = False
        self.repair_token = None
        self.not_before = now + wait

    def inventory_taken(
        self, session: int, logs: Sequence[tuple[LogId, Sequence[SegmentState]]], now: float
    ) -> None:
        """The disk has said what the store has."""
        if any(segment.damaged for _, segments in logs for segment in segments):
            self.damage_found(now)
        if session != self.session or self.leader is None:
            return
        self.active_at = now
        for page, is_last in _pages(logs):
            message = Inventory(self.shard, self.epoch, session, page, is_last)
            self.node.effects.append(Send(self.leader, message))

    def damage_found(self, now: float) -> None:
        """The store is not whole. It says so on its disk before it lets anybody repair it."""
        self.is_whole = False
        self.repair_token = None
        if self.is_noted or self.note_token is not None:
            return
        self.close(now)
        if not self.node.rules.note_damage:
            self.is_noted = True
            return
        self.note_token = self.node.next_token()
        self.node.effects.append(KeepWhole(self.shard, is_whole=False))
        self.node.effects.append(Apply(self.shard, self.epoch, (), self.note_token))

    # --- what the leader sends ---

    def batch(self, sender: StoreId, batch: Batch, now: float) -> None:
        """Apply a batch, if it is the next one of the session."""
        node = self.node
        if node.rules.one_session:
            if batch.session != self.session or sender != self.leader:
                return
            if batch.number != self.applied + 1:
                self.close(now)
                self.open(now)
                return
        self.applied = batch.number
        self.active_at = now
        self.patience.hear(now)
        token = node.next_token()
        if batch.in_step:
            self.was_in_step = True
            if not self.is_whole:
                self.repair_token = token
        ack = Ack(self.shard, batch.epoch, batch.session, batch.number)
        node.effects.append(Apply(self.shard, batch.epoch, batch.changes, token))
        if node.rules.sync_before_ack:
            self.unsynced.append(Unsynced(token, sender, ack))
        else:
            node.acks.setdefault(sender, {})[self.shard] = ack

    def synced(self, token: int) -> None:
        """All that was applied up to this token is synced."""
        if self.note_token is not None and self.note_token <= token:
            self.note_token = None
            self.is_noted = True
        if self.repair_token is not None and self.repair_token <= token:
            self.repair_token = None
            self.is_whole, self.is_noted = True, False
            self.node.effects.append(KeepWhole(self.shard, is_whole=True))
        unsynced = self.unsynced
        last: Unsynced | None = None
        while unsynced and unsynced[0].token <= token:
            last = unsynced.popleft()
        if last is not None and last.to in self.node.links:
            self.node.acks.setdefault(last.to, {})[self.shard] = last.ack

    def tick(self, now: float) -> None:
        """Begin anew if the leader has forgotten this session."""
        if not self.clearing.is_idle:
            self.clearing.tick(now)
        if self.session != NO_SESSION:
            if self.was_in_step or now - self.active_at <= self.node.settings.session_silence:
                return
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
