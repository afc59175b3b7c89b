"""Times and limits of the protocol, and its rules.

All times are seconds of a clock that never jumps and goes on while a machine sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass

IN_FLIGHT_BYTES_MAX = 16 * 1024 * 1024  # that a follower has not acked; publishers wait beyond
CATCHUP_IN_FLIGHT_BYTES_MAX = 4 * 1024 * 1024  # of these, read from files for a follower that catches up
HELD_BYTES_MAX = 16 * 1024 * 1024  # of new changes of a log, while the log is sent to a follower
BATCH_BYTES_MAX = 1024 * 1024  # of changes in one batch, plus one change
INVENTORY_SEGMENTS_MAX = 20_000  # in one page
INVENTORY_LOGS_MAX = 2_000_000  # of a shard


@dataclass(frozen=True, slots=True)
class Settings:
    """How patient a node is. All nodes of a cluster have the same."""

    min_in_sync: int = 2  # stores that have all that is confirmed, at the least
    lease: float = 1.5  # how long a leader may deliver after it sent a beacon that was echoed
    grace: float = 2.5  # how long a follower waits for a beacon before it stands
    beacon_every: float = 0.25  # from a leader to each node that keeps its shards
    rank_delay: float = 0.05  # between the stores that may stand, by their place among the replicas
    disk_patience: float = 2.0  # until a leader with a failing disk hands over
    failure_patience: float = 10.0  # after something has failed, until a store may lead the shard again
    hand_over_patience: float = 2.0  # for what was published, until a leader hands over all the same
    readmission_first: float = 1.0  # a store that left the in-sync set waits so long; then doubled
    readmission_last: float = 60.0  # but no longer than this
    record_read_every: float = 10.0  # a watch may lose events
    ask_again: float = 1.0  # for a record that is not known, or a session that is refused
    etcd_wait_first: float = 0.05  # between tries of a node while etcd does not answer; then doubled
    etcd_wait_last: float = 0.5  # but no longer than this
    session_silence: float = 5.0  # until a follower that catches up begins anew
    preferred_after: float = 60.0  # in step, until the preferred leader gets its shard back
    logs_a_turn: int = 200  # that a leader compares with a follower's
    preferred_every: float = 1.0  # a node hands back at most one shard in this time

    def __post_init__(self) -> None:
        if not 0 < self.beacon_every < self.lease < self.grace:
            raise ValueError(
                "a beacon must come more often than the lease ends, and the lease before the grace"
            )
        if self.min_in_sync < 1:
            raise ValueError("at least one store must be in sync")


@dataclass(frozen=True, slots=True)
class Rules:
    """Every rule that keeps what was confirmed. All of them hold; only the simulator switches one off, to
    see that it notices.
    """

    all_members: bool = True  # a batch is committed when every member has it, not some of them
    own_disk_counts: bool = True  # the leader is one of these
    sync_before_ack: bool = True  # a follower acks what is synced
    known_shrink: bool = True  # a member counts until its leaving is known to be written
    early_admission: bool = True  # a joiner counts from the moment its admission is sent
    late_cas: bool = True  # ... and until the record has a revision at which the admission cannot be written
    never_below_min: bool = True  # the in-sync set never has fewer than `min_in_sync`
    new_epoch_at_restart: bool = True  # a run never goes on with the epoch of another run
    only_in_sync_stand: bool = True
    only_whole_stand: bool = True  # no store leads that has damaged segments
    note_damage: bool = True  # ... not even after a restart in the middle of a repair
    fence: bool = True  # a follower refuses lower epochs
    durable_epochs: bool = True  # ... after a restart as well
    one_session: bool = True  # a follower applies batches of its newest session only, in order
    by_epoch: bool = True  # segments are the same if base and epoch are
    no_delete_first: bool = True  # resync never removes first what it fetches then
    all_logs: bool = True  # a follower is in step when all its logs are
    joiner_has_opening: bool = True  # a joiner has all that the leader had when its epoch began
    hold_changes: bool = True  # changes of a log that is being sent are held, and sent after it
    barrier: bool = True  # a new leader's own log is synced before it counts
    fresh_session: bool = True  # a store that is added is admitted by a session that began after that
    confirm_gone: bool = True  # a store removes copies only when etcd says that it keeps none
    open_when_in_step: bool = True  # a leader opens when all members have its log
    lease: bool = True  # a leader delivers while its members echo its beacons
    no_echo_while_standing: bool = True
    earlier_doubt: bool = True  # that a compare-and-swap was not sent says nothing of an earlier one
    exact_evidence: bool = True  # that a process is gone says nothing of a later one of the same store
    grace_after_boot: bool = True  # a store that starts waits as if it had heard the leader just now
    stop_before_hand_over: bool = True  # a leader that hands over does not deliver any more
    doubtful_hand_over: bool = True  # ... not even when it gives up, as long as it may yet be written
