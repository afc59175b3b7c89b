"""What the protocol wants done, as plain values. A runtime with sockets, disk and etcd carries them out.

The runtime takes effects in the order in which they come. What it must keep to:

* `Apply`, `KeepEpoch` and `KeepWhole` of a shard reach the disk's memory at once, in order. `synced(token)`
  is called when this `Apply` and all effects on the disk before it would survive a power cut, and never if
  they would not.
* `Cas` is answered by `cas_answered`. A request whose outcome is not known may still be carried out later;
  one that was not sent never is.
* `ReadRecord` is answered by a linearizable read, and is asked again if no answer comes.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from warren.cluster.config import Known, ShardRecord, StoreId
from warren.cluster.messages import Message
from warren.cluster.transactions import Outcome
from warren.storage.replication import LogChange, LogId


class Role(Enum):
    """What a store is for a shard."""

    OUTSIDER = "outsider"  # the record does not name it
    FOLLOWER = "follower"
    OPENING = "opening"  # it leads, and not all members have its log yet
    OPEN = "open"  # it leads, confirms and delivers
    SUSPENDED = "suspended"  # it leads, but perhaps not any more: it neither confirms nor delivers


class Send(NamedTuple):
    to: StoreId
    message: Message


class Apply(NamedTuple):
    """Changes of a shard's logs go to the disk; `Shard.synced(token)` answers."""

    shard: int
    epoch: int
    changes: tuple[LogChange, ...]
    token: int


class KeepEpoch(NamedTuple):
    """The store knows of this epoch for ever; it is synced before the next `Apply` of the shard is."""

    shard: int
    epoch: int


class KeepWhole(NamedTuple):
    """The store knows over restarts whether all its segments of the shard are there and whole."""

    shard: int
    is_whole: bool


class TakeInventory(NamedTuple):
    """What has the store of the shard? `Shard.inventory_taken(session, logs)` answers."""

    shard: int
    session: int


class ReadRecords(NamedTuple):
    """Read some whole records of a segment, at least one, for a follower; `Shard.records_read` answers."""

    shard: int
    to: StoreId  # the follower
    session: int  # in which it gets them
    log: LogId
    base: int  # of the segment
    epoch: int  # of the segment
    offset: int  # in its file
    end: int  # to here at the most: the follower gets what comes behind as it was appended


class ReadMarks(NamedTuple):
    """Read all marks of a segment, as they are in this very turn; `Shard.marks_read` answers, some day."""

    shard: int
    to: StoreId  # the follower
    session: int  # in which it gets them
    log: LogId
    base: int  # of the segment
    epoch: int  # of the segment


class GoOn(NamedTuple):
    """There is more to do for a follower than one turn should do; `Shard.go_on` answers, in another turn."""

    shard: int
    to: StoreId
    session: int


class Cas(NamedTuple):
    """Write the record if it has this revision still."""

    shard: int
    revision: int
    record: ShardRecord


# What comes of a `Cas`: the record as it is now, or why that is not known.
CasAnswer: TypeAlias = Known | Literal[Outcome.UNKNOWN, Outcome.NOT_SENT]


class ReadRecord(NamedTuple):
    """Read the shard's record, linearizably; `Shard.record_read` answers."""

    shard: int
    number: int  # of the question


class ConfirmGone(NamedTuple):
    """Read the shard's record, linearizably and from now on; `Shard.gone_confirmed` answers, if at all."""

    shard: int
    number: int


class RemoveCopies(NamedTuple):
    """Remove all that the store has of a shard; `Shard.copies_removed` answers when it cannot come back."""

    shard: int
    number: int


class Committed(NamedTuple):
    """All that the leader appended up to this index is confirmed."""

    shard: int
    epoch: int
    up_to: int


class RoleChanged(NamedTuple):
    shard: int
    epoch: int
    role: Role


class RecordIsOlder(NamedTuple):
    """The record in etcd is older than what this store knows: etcd has lost what was written to it. Nobody
    can be elected by such a record.
    """

    shard: int
    epoch: int  # the highest that the store knows of
    record_epoch: int


class Close(NamedTuple):
    """The link to a store has to be closed: the other side breaks the rules."""

    to: StoreId
    reason: str


Effect: TypeAlias = (
    Send
    | Apply
    | KeepEpoch
    | KeepWhole
    | TakeInventory
    | ReadRecords
    | ReadMarks
    | GoOn
    | Cas
    | ReadRecord
    | ConfirmGone
    | RemoveCopies
    | Committed
    | RoleChanged
    | RecordIsOlder
    | Close
)
