"""A start with very many queues: nothing is done twice, and small queues are read without the interpreter."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.log_machine import message
from tests.support.machine import Machine
from warren.broker import commands
from warren.broker.events import QueueCreated
from warren.broker.rules import Rules
from warren.storage import definitions, definitions_recovery, queues_recovery
from warren.storage.recovery import recover

QUEUES = 80


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With some durable queues, and a message in each."""
    machine = Machine(tmp_path)
    for number in range(QUEUES):
        machine.node.execute(commands.DeclareQueue(vhost="/", name=f"q{number}", durable=True))
        machine.queues[f"q{number}"].publish(message(b"hello"))
    machine.run()
    machine.stop()
    return machine


def counting(calls: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return function(*given, **named)

    return counted


def test_each_line_of_definitions_is_parsed_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    for module in (definitions, definitions_recovery):
        parse = counting(calls, "parse", module.parse_definition)
        monkeypatch.setattr(module, "parse_definition", parse)
    lines = (machine.data / "definitions.log").read_bytes().splitlines()
    machine.start()
    assert len(machine.queues) == QUEUES
    assert calls["parse"] == len(lines) - 1, "all but the header, once"


def test_interpreter_asks_the_system_for_nothing_of_small_queues(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for some files of the broker itself: the rest is asked without the interpreter's lock."""
    calls: Counter[str] = Counter()
    monkeypatch.setattr("tests.support.machine.open_to_others", lambda _data: set())  # it asks, too
    for name in ("listdir", "stat", "open", "read", "fstat"):
        monkeypatch.setattr(os, name, counting(calls, name, getattr(os, name)))
    machine.start()
    assert [queue.message_count for queue in machine.queues.values()] == [1] * QUEUES
    for name in ("listdir", "stat", "open", "read", "fstat"):
        assert calls[name] < QUEUES, name


@pytest.mark.parametrize("damaged", [0, 5])
def test_this_thread_reads_what_those_without_the_lock_leave(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, damaged: int
) -> None:
    threads: Counter[int] = Counter()

    def recorded(*given: Any, **named: Any) -> Any:
        threads[threading.get_ident()] += 1
        return recover(*given, **named)

    monkeypatch.setattr(queues_recovery, "recover", recorded)
    for segment in sorted((machine.data / "queues").glob("*/*.seg"))[:damaged]:
        with segment.open("ab") as file:
            file.write(b"torn")
    machine.start()
    assert threads[threading.get_ident()] == threads.total() == damaged
    assert [queue.message_count for queue in machine.queues.values()] == [1] * QUEUES


def test_long_queues_are_read_by_threads(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_recovery, "LONG_BYTES_MIN", 0)
    for segment in (machine.data / "queues").glob("*/*.seg"):
        segment.with_suffix(".idx").touch()  # so that it is not one of the short ones
    threads: set[int] = set()

    def recorded(*given: Any, **named: Any) -> Any:
        threads.add(threading.get_ident())
        return recover(*given, **named)

    monkeypatch.setattr(queues_recovery, "recover", recorded)
    machine.start()
    assert threads
    assert threading.get_ident() not in threads
    assert [queue.message_count for queue in machine.queues.values()] == [1] * QUEUES


def test_start_leaves_no_cycles_for_the_collector(machine: Machine, tmp_path: Path) -> None:
    """What there is when a broker has started is never looked through, so garbage would stay for good."""
    gc.collect()
    gc.disable()
    try:
        again = Machine(tmp_path, boot_id=machine.boot_id)
        found = gc.collect()
    finally:
        gc.enable()
    assert len(again.queues) == QUEUES
    assert found < QUEUES


def test_queues_with_the_same_arguments_share_their_rules(machine: Machine) -> None:
    machine.start()
    for name in ("a", "b"):
        machine.node.execute(commands.DeclareQueue(vhost="/", name=name, arguments={"x-max-length": 5}))
    queues = machine.queues
    assert len({id(queues[f"q{number}"].rules) for number in range(QUEUES)}) == 1
    assert queues["a"].rules is queues["b"].rules
    assert queues["a"].rules == Rules(max_length=5)


def test_events_are_wanted_while_somebody_subscribes(machine: Machine) -> None:
    machine.start()
    events = machine.node.events
    assert not events.wants(QueueCreated)
    told: list[str] = []
    end = events.subscribe(QueueCreated, lambda event: told.append(event.queue))
    machine.node.execute(commands.DeclareQueue(vhost="/", name="new"))
    assert events.wants(QueueCreated)
    end()
    assert not events.wants(QueueCreated)
    assert told == ["new"]
