"""What two stores have of a log → a plan that makes the follower's files those of the leader.

    segment of the follower                    the plan
    same base and epoch at the leader          keeps it; cuts what is longer, fetches what is missing
    ... but damaged                            drops it, fetches it whole
    the leader had it, and dropped it          drops it
    the leader may never have had it           sets it aside

Same base and epoch means that one is a prefix of the other: only the leader of its epoch ever appended to it.
A segment that the leader has as well is never removed first and fetched then, since the follower may be in
sync, and have to lead before it has fetched it. What the leader does not have at all was never confirmed, or
is done with, since a leader has all that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warren.cluster.settings import Rules
from warren.storage.replication import Drop, LogChange, LogId, SegmentState, SetAside, Truncate

ALL_RULES = Rules()


class Fetch(NamedTuple):
    """Bytes of a segment that the follower lacks."""

    base: int
    epoch: int
    offset: int  # from here
    end: int  # to here


class Plan(NamedTuple):
    changes: tuple[LogChange, ...]  # done before anything is fetched
    fetches: tuple[Fetch, ...]  # in the order of their bases: the tail is last


def make_plan(
    log: LogId, theirs: Sequence[SegmentState], ours: Sequence[SegmentState], rules: Rules = ALL_RULES
) -> Plan:
    """How a follower that has `theirs` of a log comes to have `ours`."""
    kept: dict[int, int] = {}  # how many bytes of a segment the follower can keep, by its base
    changes: list[LogChange] = []
    by_base = {segment.base: segment for segment in ours}
    for segment in theirs:
        mine = by_base.get(segment.base)
        if mine is None or (mine.epoch != segment.epoch and rules.by_epoch):
            changes.append(_removal(log, segment, ours))
        elif segment.damaged or not rules.no_delete_first:
            changes.append(Drop(log, segment.base, segment.epoch))
        else:
            kept[segment.base] = min(segment.length, mine.length)
            if segment.length > mine.length:
                changes.append(Truncate(log, segment.base, segment.epoch, mine.length))
    fetches = [
        Fetch(segment.base, segment.epoch, kept.get(segment.base, 0), segment.length)
        for segment in sorted(ours)
        if kept.get(segment.base, 0) < segment.length
    ]
    return Plan(tuple(changes), tuple(fetches))


def _removal(log: LogId, segment: SegmentState, ours: Sequence[SegmentState]) -> Drop | SetAside:
    """A leader that has a later segment of the same epoch had this one too, and has dropped it."""
    for mine in ours:
        if mine.epoch == segment.epoch and mine.base > segment.base:
            return Drop(log, segment.base, segment.epoch)
    return SetAside(log, segment.base, segment.epoch)
