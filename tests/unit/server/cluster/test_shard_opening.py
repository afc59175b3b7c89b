"""Queues that fail to open when a term begins."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.machine import Machine
from warren.cluster.definitions.definition_copy import Record
from warren.server.cluster.shard_opening import AGAIN_SECONDS, ShardOpening
from warren.storage.led_shard import LedShard


class Led:
    """Stands in for a `LedShard`."""

    def __init__(self) -> None:
        self.opened: set[int] = set()  # queues of which some log is open

    def has_opened(self, number: int) -> bool:
        return number in self.opened


class Queue:
    """Stands in for a record of a queue."""

    def __init__(self, number: int) -> None:
        self.number = number


class Term:
    """A shard with the queues 1 and 2 is opened. To open queue 1 fails with these errors first."""

    def __init__(self, machine: Machine, *errors: Exception) -> None:
        self.machine = machine
        self.led = Led()
        self.errors = list(errors)
        self.opened: list[int] = []
        self.times_handed_over = 0
        self.opening = ShardOpening(
            machine.node, cast("LedShard", self.led), self.open, lambda: None, self.hand_over
        )
        self.opening.is_read = True
        self.opening.open(cast("Iterable[Record]", [Queue(1), Queue(2)]))

    def open(self, number: int) -> None:
        if number == 1 and self.errors:
            self.opening.failed.add(number)
            raise self.errors.pop(0)
        self.opened.append(number)

    def hand_over(self, number: int) -> None:
        assert number == 1
        self.times_handed_over += 1

    def wait(self) -> None:
        self.machine.pass_time(AGAIN_SECONDS)


def too_many_files() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.world.errors.clear()
    machine.stop()
    machine.platter.close()


def test_it_is_opened_again_if_the_reason_may_pass(machine: Machine) -> None:
    term = Term(machine, too_many_files(), too_many_files())
    assert term.opened == [2]
    assert not term.opening.may_be_open(1)
    term.wait()
    assert term.opened == [2]
    term.wait()
    assert term.opened == [2, 1]
    assert term.opening.may_be_open(1)
    assert len(machine.world.errors) == 2


def test_another_node_is_asked_to_lead_until_one_does_if_some_log_of_the_queue_is_open(
    machine: Machine,
) -> None:
    term = Term(machine, too_many_files())
    term.led.opened.add(1)
    for times in (1, 2, 3):
        term.wait()
        assert (term.opened, term.times_handed_over) == ([2], times)
    term.opening.end()
    term.wait()
    assert term.times_handed_over == 3


def test_it_is_not_opened_again_if_the_reason_stays_or_the_term_has_ended(machine: Machine) -> None:
    stays, ended = Term(machine, ValueError("it is damaged")), Term(machine, too_many_files())
    ended.opening.end()
    for term in (stays, ended):
        term.wait()
        assert (term.opened, term.times_handed_over) == ([2], 0)
