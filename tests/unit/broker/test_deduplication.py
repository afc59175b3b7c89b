"""Notes of what deduplication has seen are written when the message is safe, and no earlier."""

from __future__ import annotations

from tests.support.rounds import Rounds
from warren.amqp.properties import BasicProperties
from warren.broker.deduplication import FORGET_STEP, FORGET_WORK, FORGOTTEN_AT_A_TIME_MAX, Seen
from warren.broker.message import Message
from warren.broker.store import MessageLog


class NoteLog(MessageLog):
    def __init__(self, safety: Rounds) -> None:
        super().__init__(safety)
        self.notes: list[bytes] = []
        self.acked_positions: list[int] = []

    def append(self, message: Message, position: int, taken: bool) -> int:
        self.notes.append(message.body)
        return 1

    def acked(self, position: int) -> None:
        self.acked_positions.append(position)


def message(value: str) -> Message:
    properties = BasicProperties(headers={"x-deduplication-header": value})
    return Message(b"\0", b"\x01q", properties.encode(), b"", True)


def test_note_waits_for_the_round_of_its_own_message() -> None:
    rounds = Rounds()
    seen, log = Seen(10, None, "x-deduplication-header"), NoteLog(rounds)
    seen.log = log
    seen.note(message("first"), 1)
    rounds.gathering = 2  # the first round is with the disk
    seen.note(message("second"), 1)
    rounds.end(1)
    assert [b"first" in note for note in log.notes] == [True]
    rounds.end(2)
    assert [b"second" in note for note in log.notes] == [False, True]


def test_messages_of_one_round_ask_once() -> None:
    rounds = Rounds()
    seen = Seen(10, None, "x-deduplication-header")
    seen.log = NoteLog(rounds)
    for value in "abc":
        seen.note(message(value), 1)
    assert len(rounds.waiting[1]) == 1


def test_note_waits_until_its_message_is_safe_in_queues_elsewhere() -> None:
    """Else a note could be left without its message, which would be dropped when it comes again."""
    here, there = Rounds(), Rounds()
    seen, log = Seen(10, None, "x-deduplication-header"), NoteLog(here)
    seen.log = log
    seen.note(message("first"), 1, elsewhere=[there, here, None])
    here.end(1)
    assert log.notes == []
    there.end(1)
    assert len(log.notes) == 1


def seen_with(count: int, ttl_ms: int | None = None) -> tuple[Seen, NoteLog, Rounds]:
    """So many values that were seen at time 1, with their notes written."""
    rounds = Rounds()
    seen, log = Seen(1_000_000, ttl_ms, "x-deduplication-header"), NoteLog(rounds)
    seen.log = log
    for number in range(count):
        seen.note(message(f"value {number}"), 1)
    rounds.end(1)
    assert len(log.notes) == count
    rounds.gathering = 2
    return seen, log, rounds


def test_a_note_forgets_a_bounded_number_of_values_whose_time_is_over() -> None:
    seen, log, _ = seen_with(1_000, ttl_ms=100)
    before = seen.count
    seen.note(message("new"), 200)
    assert before + 1 - seen.count == len(log.acked_positions) == FORGOTTEN_AT_A_TIME_MAX
    assert not seen.has(message("value 999"), 200), "it is no duplicate, though it is not forgotten yet"
    notes = 1
    while seen.count > notes:
        seen.note(message(f"new {notes}"), 200)
        notes += 1
    assert len(log.acked_positions) == 1_000
    assert notes < 1_000 // FORGOTTEN_AT_A_TIME_MAX + 2


def test_values_are_cleared_at_once_and_dropped_in_bounded_steps() -> None:
    seen, log, rounds = seen_with(1_000)
    seen.note(message("not written yet"), 1)
    steps = seen.clear()
    assert (seen.count, seen.has(message("value 1"), 1), log.acked_positions) == (0, False, [])
    seen.note(message("value 1"), 1)
    assert set(steps) == {FORGET_STEP * FORGET_WORK, 1 * FORGET_WORK}
    assert log.acked_positions == list(range(1, 1_001))
    assert seen.has(message("value 1"), 1), "it came after that"
    rounds.end(2)
    assert len(log.notes) == 1_001, "what was cleared gets no note later"


def test_what_was_cleared_is_not_looked_for_in_another_log() -> None:
    """Another node may lead the log before all steps are done."""
    seen, log, rounds = seen_with(1_000)
    steps = seen.clear()
    next(steps)
    seen.log = NoteLog(rounds)
    assert list(steps)
    assert len(log.acked_positions) == FORGET_STEP
    assert seen.log.acked_positions == []
