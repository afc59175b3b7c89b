from __future__ import annotations

import pytest

from tests.unit.storage.test_definitions import (
    ALL,
    BINDING,
    DELETE_QUEUE,
    EXCHANGE,
    PERMISSIONS,
    QUEUE,
    USER,
    VHOST,
    file_of,
    recorded,
)
from warren.broker import commands as c
from warren.broker.parameters import Json
from warren.storage.definitions import definition_line
from warren.storage.definitions_recovery import RecoveredDefinitions, recover_definitions


def damage(data: bytes, line: int) -> bytes:
    """Another byte in the middle of this line, counted from 1."""
    lines = data.splitlines(keepends=True)
    middle = sum(map(len, lines[: line - 1])) + len(lines[line - 1]) // 2
    return data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :]


def reported(found: RecoveredDefinitions) -> list[tuple[int, str]]:
    return [(problem.line, problem.reason) for problem in found.problems]


def test_damaged_line_is_reported_and_left_out() -> None:
    data = recorded(VHOST, USER, QUEUE).take_pending()
    found = recover_definitions(damage(data, 3))
    assert reported(found) == [(3, "damaged: its checksum is wrong")]
    assert found.problems[0].text == damage(data, 3).splitlines()[2]
    assert found.definitions.commands() == [VHOST, QUEUE]
    assert found.intact_bytes == len(data)


@pytest.mark.parametrize("cut", [1, 10], ids=["without its line break", "in the middle"])
def test_unfinished_last_line_is_a_torn_tail(cut: int) -> None:
    whole = recorded(VHOST).take_pending()
    data = whole + definition_line(USER)[:-cut]
    found = recover_definitions(data)
    assert [(p.line, p.offset, p.torn_tail) for p in found.problems] == [(3, len(whole), True)]
    assert found.problems[0].text == data[len(whole) :]
    assert found.intact_bytes == len(whole)
    assert found.definitions.commands() == [VHOST]


def test_all_damaged_lines_at_the_end_are_one_torn_tail() -> None:
    whole = recorded(VHOST).take_pending()
    found = recover_definitions(whole + damage(definition_line(USER), 1) + b"\0\0\n\0\0")
    assert [(p.line, p.offset, p.torn_tail) for p in found.problems] == [(3, len(whole), True)]
    assert found.intact_bytes == len(whole)


def test_file_that_is_all_torn_begins_anew() -> None:
    found = recover_definitions(b"\0" * 100)
    assert found.intact_bytes == 0
    assert found.definitions.take_pending() == file_of({"format": 1})


def test_damaged_line_break_loses_nothing() -> None:
    data = recorded(*ALL).take_pending()
    at = data.index(b"\n", data.index(b"declare_exchange"))
    found = recover_definitions(data[:at] + b"J" + data[at + 1 :])
    assert found.problems == []
    assert found.definitions.commands() == ALL


def test_binding_whose_end_was_lost_is_reported_and_dropped() -> None:
    data = recorded(VHOST, EXCHANGE, QUEUE, BINDING).take_pending()
    found = recover_definitions(damage(data, 4))
    assert reported(found)[1:] == [(5, "left out: there is no queue 'q' in vhost '/'")]
    assert found.definitions.commands() == [VHOST, EXCHANGE]


def test_permissions_whose_user_was_lost_are_reported_and_dropped() -> None:
    found = recover_definitions(damage(recorded(VHOST, USER, PERMISSIONS).take_pending(), 3))
    assert reported(found)[1:] == [(4, "left out: there is no user 'u'")]
    assert found.definitions.commands() == [VHOST]


def test_vhost_whose_line_was_lost_is_there_for_its_queues() -> None:
    data = recorded(VHOST, QUEUE).take_pending()
    found = recover_definitions(damage(data, 2))
    assert [problem.line for problem in found.problems] == [2]
    assert found.definitions.commands() == [VHOST, QUEUE]


def test_queue_declared_again_is_the_new_one_though_the_line_of_its_deletion_was_lost() -> None:
    data = recorded(VHOST, EXCHANGE, QUEUE, BINDING, DELETE_QUEUE, QUEUE).take_pending()
    definitions = recover_definitions(damage(data, 6)).definitions
    assert definitions.commands() == [VHOST, EXCHANGE, QUEUE]
    assert definitions.queue_number("/", "q") == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"frobnicate": {}}, "unknown command 'frobnicate'"),
        ({"add_vhost": {"name": "x", "colour": 1}}, "add_vhost: unknown field 'colour'"),
        ({"format": 2}, "format 2, where only 1 is known"),
        (
            {"declare_queue": {"vhost": "/", "name": "q", "durable": True}},
            "expected a number with declare_queue, and with nothing else",
        ),
        (
            {"add_vhost": {"name": "x"}, "number": 1},
            "expected a number with declare_queue, and with nothing else",
        ),
        ({}, "expected one command"),
    ],
    ids=str,
)
def test_intact_line_that_is_not_understood_is_reported_and_left_out(
    content: dict[str, Json], reason: str
) -> None:
    data = file_of({"format": 1}, {"add_vhost": {"name": "/"}}, content, {"add_vhost": {"name": "z"}})
    found = recover_definitions(data)
    assert reported(found) == [(3, f"not understood: {reason}")]
    assert not found.problems[0].torn_tail
    assert found.definitions.commands() == [VHOST, c.AddVhost(name="z")]


def test_last_line_that_is_intact_but_not_understood_stays_in_the_file() -> None:
    data = file_of({"format": 1}, {"frobnicate": {}})
    assert recover_definitions(data).intact_bytes == len(data)


def test_file_of_an_unknown_format_is_read_as_far_as_it_is_understood() -> None:
    found = recover_definitions(file_of({"format": 99, "next_queue_number": 5}, {"add_vhost": {"name": "/"}}))
    assert reported(found) == [(1, "not understood: format 99, where only 1 is known")]
    assert found.definitions.commands() == [VHOST]
    assert found.definitions.next_queue_number == 5
