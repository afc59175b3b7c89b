"""What a store is for a shard, and what changes that: one table."""

from __future__ import annotations

from enum import Enum

from warren.cluster.effects import Role


class Turn(Enum):
    """What can change the role of a store."""

    NAMED = "the record names the store"
    NOT_NAMED = "the record does not name the store"
    ELECTED = "the record says that the store leads"
    DEPOSED = "there is a later epoch"
    IN_STEP = "all members have the leader's log, and the lease holds"
    LAPSED = "a member does not echo, or the leader hands over"
    RENEWED = "all members echo again"


ROLES: dict[tuple[Role, Turn], Role] = {
    (Role.OUTSIDER, Turn.NAMED): Role.FOLLOWER,
    (Role.OUTSIDER, Turn.ELECTED): Role.OPENING,
    (Role.FOLLOWER, Turn.NOT_NAMED): Role.OUTSIDER,
    (Role.FOLLOWER, Turn.ELECTED): Role.OPENING,
    (Role.OPENING, Turn.DEPOSED): Role.FOLLOWER,
    (Role.OPENING, Turn.IN_STEP): Role.OPEN,
    (Role.OPEN, Turn.DEPOSED): Role.FOLLOWER,
    (Role.OPEN, Turn.LAPSED): Role.SUSPENDED,
    (Role.SUSPENDED, Turn.DEPOSED): Role.FOLLOWER,
    (Role.SUSPENDED, Turn.RENEWED): Role.OPEN,
}
