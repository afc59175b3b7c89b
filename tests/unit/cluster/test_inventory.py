"""Plans: any two histories that the protocol can produce end in the same files, and nothing is lost."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.simulation.disk import Log, Segment, State, pack, states
from warren.cluster.inventory import Fetch, make_plan
from warren.storage.replication import Drop, LogChange, LogId, Records, SegmentState, SetAside, Truncate

LOG = LogId(1)


def segment(base: int, epoch: int, length: int, *, damaged: bool = False) -> SegmentState:
    return SegmentState(base, epoch, length, damaged)


def test_a_prefix_is_kept_and_the_rest_is_fetched() -> None:
    plan = make_plan(LOG, [segment(1, 5, 100)], [segment(1, 5, 300), segment(9, 5, 50)])
    assert plan.changes == ()
    assert plan.fetches == (Fetch(1, 5, 100, 300), Fetch(9, 5, 0, 50))


def test_what_is_longer_is_cut() -> None:
    plan = make_plan(LOG, [segment(1, 5, 300)], [segment(1, 5, 100), segment(9, 6, 50)])
    assert plan.changes == (Truncate(LOG, 1, 5, 100),)
    assert plan.fetches == (Fetch(9, 6, 0, 50),)


def test_a_segment_of_another_epoch_is_set_aside_and_fetched_whole() -> None:
    plan = make_plan(LOG, [segment(9, 5, 80)], [segment(9, 6, 50)])
    assert plan.changes == (SetAside(LOG, 9, 5),)
    assert plan.fetches == (Fetch(9, 6, 0, 50),)


def test_what_the_leader_has_dropped_is_dropped() -> None:
    plan = make_plan(LOG, [segment(1, 5, 80), segment(9, 5, 80)], [segment(9, 5, 80)])
    assert plan.changes == (Drop(LOG, 1, 5),)
    assert plan.fetches == ()


def test_a_damaged_segment_is_fetched_anew() -> None:
    plan = make_plan(LOG, [segment(1, 5, 80, damaged=True)], [segment(1, 5, 80)])
    assert plan.changes == (Drop(LOG, 1, 5),)
    assert plan.fetches == (Fetch(1, 5, 0, 80),)


def test_equal_logs_need_nothing() -> None:
    same = [segment(1, 5, 80), segment(9, 6, 20)]
    assert make_plan(LOG, same, same) == ((), ())


class History:
    """Two stores of one log, over some epochs: one leads, the other follows for a while, and stops."""

    def __init__(self) -> None:
        self.logs: list[Log] = [{}, {}]
        self.number = 0
        self.ends: dict[int, int] = {}  # where the log of a store goes on

    def append(self, store: int, epoch: int, count: int, follower: int | None) -> None:
        """A leader appends; who follows it has the same log before."""
        for _ in range(count):
            self.number += 1
            log = self.logs[store]
            tail = log[max(log)] if log else None
            end = max(self.ends.get(store, 1), tail.end if tail else 1)
            if tail is None or tail.epoch != epoch or len(tail.ids) >= 3 or tail.end != end:
                tail = log[end] = Segment(end, epoch)
            tail.ids.append(self.number)
            self.ends[store] = tail.end
        if follower is not None:
            self.logs[follower] = deepcopy(self.logs[store])
            self.ends[follower] = self.ends.get(store, 1)

    def tear(self, store: int, count: int) -> None:
        """A power cut takes the last records of a store."""
        log = self.logs[store]
        for _ in range(count):
            if log:
                tail = log[max(log)]
                tail.ids.pop()
                self.ends[store] = tail.end
                if not tail.ids:
                    del log[tail.base]

    def drop(self, store: int, place: int) -> None:
        log = self.logs[store]
        if len(log) > 1:
            del log[sorted(log)[place % (len(log) - 1)]]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),  # who leads
        st.integers(1, 7),  # how much it appends
        st.integers(0, 9),  # which segment is dropped
        st.integers(0, 3),  # how much the other one loses
        st.booleans(),  # whether it follows
        st.booleans(),  # whether a segment is dropped
    ),
    max_size=8,
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Log, Log]:
    """A leader's log and a follower's. Each step is an epoch of one; the other follows, or diverges."""
    history = History()
    history.append(0, 1, draw(st.integers(0, 8)), 1)
    epoch = 1
    for leader, count, place, torn, follows, drops in draw(STEPS):
        epoch += 1
        history.append(leader, epoch, count, 1 - leader if follows else None)
        history.tear(1 - leader, torn)
        if drops:
            history.drop(leader, place)
    return history.logs[0], history.logs[1]


def carry_out(theirs: Log, ours: Log) -> tuple[Log, list[Log]]:
    """What a follower has after a plan, and after each step of it."""
    state = State(1, marks_go=True)
    state.shards[0] = {LOG: deepcopy(theirs)}
    plan = make_plan(LOG, states(theirs), states(ours))
    steps: list[LogChange] = list(plan.changes)
    for fetch in plan.fetches:
        ids = ours[fetch.base].ids[max(fetch.offset - 8, 0) // 8 :]
        words = ([fetch.epoch] if fetch.offset == 0 else []) + ids
        last = fetch.base + len(ours[fetch.base].ids) - 1
        steps.append(Records(LOG, fetch.base, fetch.epoch, fetch.offset, last, len(ids), pack(words)))
    seen = []
    for change in steps:
        state.change(0, change)
        seen.append(deepcopy(state.shards[0][LOG]))
    return state.shards[0][LOG], seen


@given(histories())
def test_after_a_plan_the_files_are_the_leaders(logs: tuple[Log, Log]) -> None:
    ours, theirs = logs
    after, _ = carry_out(theirs, ours)
    assert [after[base].contents() for base in sorted(after)] == [
        ours[base].contents() for base in sorted(ours)
    ]


@given(histories())
def test_a_plan_never_takes_away_what_the_leader_has(logs: tuple[Log, Log]) -> None:
    ours, theirs = logs
    wanted = {(base, s.epoch): s.ids for base, s in ours.items()}
    had = {
        (base, s.epoch): min(len(s.ids), len(wanted[base, s.epoch]))
        for base, s in theirs.items()
        if (base, s.epoch) in wanted
    }
    for log in carry_out(theirs, ours)[1]:
        now = {(base, s.epoch): len(s.ids) for base, s in log.items()}
        assert all(now.get(key, 0) >= count for key, count in had.items())


@given(histories())
def test_only_what_the_leader_cannot_have_had_is_set_aside_or_else_dropped(logs: tuple[Log, Log]) -> None:
    ours, theirs = logs
    here = {(s.base, s.epoch) for s in ours.values()}
    for change in make_plan(LOG, states(theirs), states(ours)).changes:
        if isinstance(change, SetAside):
            assert (change.base, change.epoch) not in here
            assert not any(s.epoch == change.epoch and s.base > change.base for s in ours.values())
