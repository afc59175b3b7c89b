"""A reader stops between two frames when the turn's budget is used up, and goes on there."""

from __future__ import annotations

import pytest

from tests.support.frames import PROTOCOL_HEADER, method_frame
from tests.unit.amqp.test_reader import STREAM, NotedReader, publish, published
from warren.amqp import methods as m
from warren.amqp.budget import Budget
from warren.amqp.reader import ReadBuffer


class BudgetReader(NotedReader):
    """Each method uses up the budget."""

    def __init__(self, buffer: ReadBuffer) -> None:
        super().__init__(buffer)
        self.budget = Budget(1)
        self.tired = 0

    def on_tired(self) -> int:
        self.tired += 1
        return 0

    def on_blocked_publish(self) -> int:
        self.notes.append(("blocked",))
        return 0

    def go_on(self, left: int) -> None:  # type: ignore[override]
        self.budget.left = left
        self.resume()


@pytest.fixture
def reader() -> BudgetReader:
    reader = BudgetReader(ReadBuffer())
    reader.feed(PROTOCOL_HEADER)
    reader.notes.clear()
    return reader


QOS = method_frame(1, m.BasicQos())


def test_reader_stops_behind_the_frame_that_used_up_the_budget(reader: BudgetReader) -> None:
    reader.feed(QOS * 5)
    assert (len(reader.notes), reader.tired, reader.suspended) == (1, 1, True)


def test_reader_goes_on_in_what_it_has_read(reader: BudgetReader) -> None:
    reader.feed(QOS * 5)
    for done in range(2, 6):
        reader.go_on(1)
        assert len(reader.notes) == done
    assert not reader.suspended


def test_reader_whose_last_frame_used_up_the_budget_is_not_tired(reader: BudgetReader) -> None:
    reader.feed(QOS)
    assert not reader.suspended


@pytest.mark.parametrize("cut", range(0, len(QOS) + 1, 3))
def test_what_comes_behind_a_rest_is_joined_to_it(reader: BudgetReader, cut: int) -> None:
    reader.feed(QOS * 3 + QOS[:cut])
    reader.feed(QOS[cut:])
    while reader.suspended:
        reader.go_on(1)
    assert reader.notes == [("method", 1, m.BasicQos().encode())] * 4


@pytest.mark.parametrize("left", [1, 100])
def test_all_is_read_the_same_in_small_turns(left: int) -> None:
    whole, bit_by_bit = NotedReader(ReadBuffer()), BudgetReader(ReadBuffer())
    bit_by_bit.budget.left = left
    for reader in (whole, bit_by_bit):
        reader.feed(STREAM)
    while bit_by_bit.suspended:
        bit_by_bit.go_on(left)
    tx_select = ("method", 1, m.TxSelect().encode())
    assert tx_select not in whole.notes
    assert bit_by_bit.notes == whole.notes


def test_blocking_reader_stops_before_the_message_and_takes_it_when_it_resumes(reader: BudgetReader) -> None:
    reader.budget.left = 1_000_000
    reader.blocking = True
    reader.feed(QOS + publish(b"1") + publish(b"2"))
    assert reader.notes[1:] == [("blocked",)]
    reader.blocking = False
    reader.resume()
    assert reader.notes[2:] == [published(b"1"), published(b"2")]
