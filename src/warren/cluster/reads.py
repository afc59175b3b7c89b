"""When a store reads the record of a shard, and what an answer says of etcd.

A watch tells what changes, but it may lose something, so each record is read from time to time. Shards share
a few moments of the interval: what is read at one moment is one request, and no moment is one for all.

What a read finds has all that was written before it was asked for. So if it has less than the store knew
then, etcd has lost something: somebody has put it back to an older state.
"""

from __future__ import annotations

from warren.cluster.beacons import NEVER
from warren.cluster.config import Known
from warren.cluster.effects import ReadRecord, RecordIsOlder
from warren.cluster.this_node import ThisNode

MOMENTS = 16  # of an interval, at which records are read


class Reads:
    """Of one shard at one store."""

    __slots__ = ("asked_at", "confirmed_at", "is_lost", "knew", "next_at", "node", "number", "shard", "share")

    def __init__(self, node: ThisNode, shard: int, now: float) -> None:
        self.node = node
        self.shard = shard  # its number
        self.share = shard % MOMENTS / MOMENTS  # of an interval: this shard's moment in it
        self.next_at = now + self.share * node.settings.ask_again  # if nothing asks for news before
        self.asked_at = now  # when the record was last asked for
        self.number = 0  # of that question
        self.knew = (0, 0)  # an epoch and a revision that etcd had before it was asked
        self.confirmed_at = NEVER  # when etcd last answered what the record is
        self.is_lost = False  # etcd has less than it had: the record cannot be changed any more

    def ask(self, epoch: int, known: Known | None, now: float) -> None:
        """Ask etcd. The store knows of this epoch, and this record."""
        node = self.node
        self.number = node.next_token()
        self.knew = (epoch, 0 if known is None else known.revision)
        self.asked_at = now
        self.next_at = self._next_moment(now)
        node.etcd.asks(now)
        node.effects.append(ReadRecord(self.shard, self.number))

    def is_due(self, now: float, *, wants_news: bool) -> bool:
        """Whether to ask now: it is time for it, or there is something that the store should know."""
        ask_again = self.node.settings.ask_again
        if now < self.next_at and not (wants_news and now - self.asked_at > ask_again):
            return False
        if self.node.etcd.may_ask(now):
            return True
        self.next_at = self._next_moment(now)
        return False

    def _next_moment(self, now: float) -> float:
        every = self.node.settings.record_read_every
        return now + every - (now - self.share * every) % every

    def answered(self, number: int, found: Known, now: float) -> None:
        """What a `ReadRecord` has found."""
        self.node.etcd.answered()
        self.confirmed_at = now
        if number == self.number:
            epoch, revision = self.knew
            self.note(found, is_older=found.record.epoch < epoch or found.revision < revision)

    def note(self, found: Known, *, is_older: bool) -> None:
        """Etcd has answered with this record, and it is older than what etcd once had, or it is not."""
        if is_older and not self.is_lost:
            self.node.effects.append(RecordIsOlder(self.shard, self.knew[0], found.record.epoch))
        self.is_lost = is_older
