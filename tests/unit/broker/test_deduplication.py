"""Notes of what deduplication has seen are written when the message is safe, and no earlier."""

from __future__ import annotations

from tests.support.rounds import Rounds
from warren.amqp.properties import BasicProperties
from warren.broker.deduplication import Seen
from warren.broker.message import Message
from warren.broker.store import MessageLog


class NoteLog(MessageLog):
    def __init__(self, safety: Rounds) -> None:
        super().__init__(safety)
        self.notes: list[bytes] = []

    def append(self, message: Message, position: int, taken: bool) -> int:
        self.notes.append(message.body)
        return 1


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
