"""What a store is for a shard, and what changes that: one table."""

from __future__ import annotations

from enum import Enum

from warren.cluster.effects import Role


class Occasion(Enum):
    """What can change the role of a store."""

    NAMED = "the record names the store"
    NOT_NAMED = "the record does not name the store"
    ELECTED = "the record says that the store leads"
    DEPOSED = "there is a later epoch"
    IN_STEP = "all members have the leader's log, and the lease holds"
    LAPSED = "a member does not echo, or the leader hands over"
    RENEWED = "all members echo again"


ROLES: dict[tuple[Role, Occasion], Role] = {
    (Role.OUTSIDER, Occasion.NAMED): Role.FOLLOWER,
    (Role.OUTSIDER, Occasion.ELECTED): Role.OPENING,
    (Role.FOLLOWER, Occasion.NOT_NAMED): Role.OUTSIDER,
    (Role.FOLLOWER, Occasion.ELECTED): Role.OPENING,
    (Role.OPENING, Occasion.DEPOSED): Role.FOLLOWER,
    (Role.OPENING, Occasion.IN_STEP): Role.OPEN,
    (Role.OPEN, Occasion.DEPOSED): Role.FOLLOWER,
    (Role.OPEN, Occasion.LAPSED): Role.SUSPENDED,
    (Role.SUSPENDED, Occasion.DEPOSED): Role.FOLLOWER,
    (Role.SUSPENDED, Occasion.RENEWED): Role.OPEN,
}
