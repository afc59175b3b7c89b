"""Each log names what says when it is safe, and the store what says it of definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.log_machine import QUEUE, STREAM, LogMachine
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.commands import DeleteQueue
from warren.broker.message import Message
from warren.broker.safety import Safety
from warren.broker.store import Store
from warren.storage import commit

NO_ARGUMENTS: Table = {}


@pytest.fixture(params=[NO_ARGUMENTS, STREAM], ids=["queue", "stream"])
def arguments(request: pytest.FixtureRequest) -> Table:
    table: Table = request.param
    return table


@pytest.fixture
def machine(arguments: Table, tmp_path: Path) -> Iterator[LogMachine]:
    machine = LogMachine(tmp_path, arguments=arguments)
    yield machine
    machine.close()


def message(body: bytes) -> Message:
    properties = BasicProperties(delivery_mode=2).encode()
    return Message(encode_name(""), encode_name(QUEUE), properties, body, True)


Opened: TypeAlias = tuple[Safety, Callable[[bytes], object]]
"""The safety of a log, and how to append to that."""


@pytest.fixture
def opened(machine: LogMachine, arguments: Table) -> Opened:
    if arguments == STREAM:
        stream = machine.open_stream()[0]
        return stream.safety, lambda body: stream.append(message(body), 1, 0)
    log = machine.open()
    return log.safety, lambda body: log.append(message(body), 1, False)


def test_log_is_safe_when_the_round_of_what_was_appended_is_over(machine: LogMachine, opened: Opened) -> None:
    safety, append = opened
    rounds: list[int] = []
    append(b"x")
    number = safety.gathering
    safety.when_safe(rounds.append)
    machine.world.run()
    assert (rounds, safety.gathering) == ([], number + 1)  # in flight
    assert machine.finish_round()
    assert rounds == [number]


def test_log_is_behind_while_too_much_of_it_is_not_safe(
    machine: LogMachine, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "UNSAFE_BYTES_MAX", 1000)
    safety, append = opened
    append(bytes(1000))
    assert safety.behind
    machine.run()
    assert not safety.behind


def test_definitions_are_safe_when_their_round_is_over(machine: LogMachine) -> None:
    rounds: list[int] = []
    machine.store.record(DeleteQueue(vhost="/", name=QUEUE))
    machine.store.safety.when_safe(rounds.append)
    assert machine.store.is_saving()
    machine.run()
    assert (len(rounds), machine.store.is_saving()) == (1, False)


def test_without_a_disk_the_store_itself_says_what_is_safe() -> None:
    store = Store()
    assert (store.safety.gathering, store.safety.behind, store.is_saving()) == (1, False, False)
