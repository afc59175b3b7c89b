"""A follower gets files first and then what is new, without a gap and without an overlap."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.simulation.disk import Disk, ShardLogs, pack, states
from warren.cluster.catchup import Catchup, Progress, size_of
from warren.cluster.inventory import Fetch
from warren.cluster.settings import CATCHUP_IN_FLIGHT_BYTES_MAX, HELD_BYTES_MAX, Rules
from warren.storage.replication import AllMarks, Drop, LogChange, LogId, Marks, Records, RemoveLog

ONE, TWO = LogId(1), LogId(2)


def record(log: LogId, base: int, place: int, number: int) -> Records:
    words = (7, number) if place == 0 else (number,)
    return Records(log, base, 7, 0 if place == 0 else 8 + 8 * place, base + place, 1, pack(words))


class Pair:
    """A leader's disk and a follower's, and a catch-up between them."""

    def __init__(self) -> None:
        self.leader = Disk("a", 1, marks_go=True)
        self.follower = Disk("b", 1, marks_go=True)
        self.asked: list[tuple[LogId, Fetch]] = []
        self.marks: list[tuple[LogId, int, int, AllMarks | None]] = []  # that were asked for
        self.marks_wait = False
        self.catchup: Catchup

    def begin(self) -> Catchup:
        theirs = {log: states(segments) for log, segments in self.follower.memory.shards[0].items()}
        logs = ShardLogs(self.leader, 0)
        self.catchup = Catchup(logs, theirs, Rules(), self.send, self.ask, self.ask_marks)
        return self.catchup

    def ask(self, log: LogId, fetch: Fetch) -> None:
        self.asked.append((log, fetch))

    def ask_marks(self, log: LogId, base: int, epoch: int) -> None:
        self.marks.append((log, base, epoch, self.leader.read_marks(0, log, base, epoch)))
        if not self.marks_wait:
            self.answer_marks()

    def answer_marks(self) -> None:
        for answer in self.marks:
            self.catchup.marks_read(*answer)
        self.marks = []

    def send(self, changes: Sequence[LogChange]) -> None:
        for change in changes:
            self.follower.memory.change(0, change)

    def append(self, catchup: Catchup, change: LogChange) -> None:
        self.leader.memory.change(0, change)
        self.send(catchup.pass_on((change,)))

    def answer(self, catchup: Catchup) -> None:
        log, fetch = self.asked.pop(0)
        length = fetch.end - fetch.offset
        catchup.records_read(self.leader.read(0, log, fetch.base, fetch.epoch, fetch.offset, length))

    def same(self) -> bool:
        mine, theirs = (
            {
                log: [s.contents() for s in segments.values()]
                for log, segments in disk.memory.shards[0].items()
            }
            for disk in (self.leader, self.follower)
        )
        return mine == theirs


def test_files_come_first_and_what_is_new_after_them() -> None:
    pair = Pair()
    for place in range(3):
        pair.leader.memory.change(0, record(ONE, 1, place, place))
    catchup = pair.begin()
    assert catchup.go_on(0, 9) is Progress.WAITS
    pair.append(catchup, record(ONE, 1, 3, 33))
    pair.append(catchup, Marks(ONE, 1, 7, pack((1,))))
    assert pair.follower.memory.shards[0] == {}, "what is new is held"
    pair.answer(catchup)
    assert catchup.go_on(0, 9) is Progress.DONE
    assert pair.same()


def test_a_log_that_is_live_gets_changes_at_once_and_one_that_waits_does_not() -> None:
    pair = Pair()
    pair.leader.memory.change(0, record(ONE, 1, 0, 1))
    pair.leader.memory.change(0, record(TWO, 1, 0, 2))
    catchup = pair.begin()
    catchup.go_on(0, 9)
    pair.append(catchup, record(TWO, 1, 1, 22))
    pair.answer(catchup)
    catchup.go_on(0, 9)
    pair.append(catchup, record(ONE, 1, 1, 11))
    assert pair.follower.memory.shards[0][ONE][1].ids == [1, 11]
    assert TWO not in pair.follower.memory.shards[0]
    pair.answer(catchup)
    assert catchup.go_on(0, 9) is Progress.DONE
    assert pair.same()


def test_a_log_that_is_new_is_live_from_its_first_record() -> None:
    pair = Pair()
    catchup = pair.begin()
    pair.append(catchup, record(ONE, 1, 0, 1))
    assert pair.same()
    assert catchup.go_on(0, 9) is Progress.DONE


def test_a_log_that_the_leader_does_not_have_goes() -> None:
    pair = Pair()
    pair.follower.memory.change(0, record(ONE, 1, 0, 1))
    assert pair.begin().go_on(0, 9) is Progress.DONE
    assert pair.same()


def test_a_log_that_is_deleted_while_it_is_sent_goes() -> None:
    pair = Pair()
    pair.leader.memory.change(0, record(ONE, 1, 0, 1))
    catchup = pair.begin()
    catchup.go_on(0, 9)
    pair.append(catchup, RemoveLog(ONE))
    pair.answer(catchup)
    assert catchup.go_on(0, 9) is Progress.DONE
    assert pair.same()


def test_a_segment_that_is_dropped_while_it_is_sent_leaves_no_trace() -> None:
    pair = Pair()
    for place in range(4):
        pair.leader.memory.change(0, record(ONE, 1, place, place))
    catchup = pair.begin()
    catchup.go_on(0, 9)
    pair.append(catchup, record(ONE, 1, 4, 44))
    pair.append(catchup, Marks(ONE, 1, 7, pack((2,))))
    pair.append(catchup, record(ONE, 6, 0, 6))
    pair.append(catchup, Drop(ONE, 1, 7))
    pair.answer(catchup)
    assert catchup.go_on(0, 9) is Progress.DONE
    assert pair.same()


def test_nothing_is_read_while_too_much_is_on_its_way() -> None:
    pair = Pair()
    pair.leader.memory.change(0, record(ONE, 1, 0, 1))
    catchup = pair.begin()
    assert catchup.go_on(CATCHUP_IN_FLIGHT_BYTES_MAX, 9) is Progress.WAITS
    assert not pair.asked
    assert catchup.go_on(0, 9) is Progress.WAITS
    assert pair.asked


def test_a_log_that_grows_faster_than_it_is_sent_is_noticed() -> None:
    pair = Pair()
    pair.leader.memory.change(0, record(ONE, 1, 0, 1))
    catchup = pair.begin()
    catchup.go_on(0, 9)
    change = Records(ONE, 1, 7, 16, 2, 1, bytes(HELD_BYTES_MAX // 2))
    assert size_of((change, Drop(ONE, 1, 7))) == HELD_BYTES_MAX // 2
    catchup.pass_on((change,))
    assert not catchup.holds_too_much
    catchup.pass_on((change, change))
    assert catchup.holds_too_much


def test_marks_are_of_the_turn_in_which_a_log_is_begun_and_later_ones_follow() -> None:
    pair = Pair()
    pair.marks_wait = True
    pair.leader.memory.change(0, record(ONE, 1, 0, 1))
    pair.leader.memory.change(0, Marks(ONE, 1, 7, pack((1,))))
    pair.follower.memory.change(0, record(ONE, 1, 0, 1))
    catchup = pair.begin()
    assert catchup.go_on(0, 9) is Progress.WAITS
    pair.append(catchup, record(ONE, 1, 1, 2))
    pair.append(catchup, Marks(ONE, 1, 7, pack((2,))))
    pair.answer_marks()
    assert pair.follower.memory.shards[0][ONE][1].marks == set()
    assert catchup.go_on(0, 9) is Progress.DONE
    assert pair.same()


def test_a_turn_compares_some_logs_only() -> None:
    pair = Pair()
    for number in range(5):
        pair.leader.memory.change(0, record(LogId(number), 1, 0, number))
    pair.follower.memory = pair.leader.memory.copy()
    catchup = pair.begin()
    assert catchup.go_on(0, 2) is Progress.MORE
    assert catchup.go_on(0, 2) is Progress.MORE
    assert len(catchup.live) == 4
    assert catchup.go_on(0, 2) is Progress.DONE
    assert pair.same()
