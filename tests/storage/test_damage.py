"""Damaged files: the broker starts, says what it found, and serves all the rest in order."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.storage.bulk import NumberPublisher
from tests.storage.damages import (
    ACKED,
    BODY_BYTES,
    DAMAGES,
    MESSAGES,
    SEGMENT_BYTES,
    Damage,
    empty,
    flip_a_byte,
    left,
)
from tests.storage.home import Home, connected, message_count
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m

NEW = MESSAGES + 1


def fill(channel: AmqpChannel, queue: str) -> None:
    """A queue of several segments, some of whose messages are acked, one by one."""
    channel.declare(queue, exclusive=False, durable=True)
    NumberPublisher(channel, queue, body_bytes=BODY_BYTES).publish(range(MESSAGES))
    for _ in range(ACKED):
        channel.get(queue)
    channel.close()
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)


def drain(channel: AmqpChannel, queue: str) -> list[int]:
    return [int(body[:8]) for body in channel.drain(queue)]


def directories(home: Home) -> dict[str, Path]:
    """By the names of their queues."""
    found = {}
    for path in (home.data_dir / "queues").iterdir():
        description = json.loads((path / "queue.json").read_text())
        found[description["declare_queue"]["name"]] = path
    return found


# --- queues ---


@dataclass
class Outcome:
    """Of all damages, each to a queue of its own: what was to be left, what the next broker found, what the
    one after that, the log of the first, and the numbers of the queues.
    """

    expected: dict[str, list[int]]
    found: dict[str, list[int]]
    later: dict[str, list[int]]
    log: list[dict[str, str]]
    numbers: dict[str, str]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    home = Home(tmp_path_factory.mktemp("damaged"))
    home.settings["segment_bytes"] = SEGMENT_BYTES
    names = [damage.__name__ for damage in DAMAGES]
    with home.life() as channel:
        for name in names:
            fill(channel, name)
    paths = directories(home)
    expected = {damage.__name__: damage(paths[damage.__name__]) for damage in DAMAGES}
    with home.broker(ends_by=signal.SIGKILL) as process, connected(process) as channel:
        found = {name: drain(channel, name) for name in names}
        for name in names:
            channel.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)
            channel.call(m.ChannelOpen(), m.ChannelOpenOk)
            NumberPublisher(channel, name, body_bytes=BODY_BYTES).publish([NEW])
    log = [json.loads(line) for line in home.log().splitlines()]
    with home.life() as channel:
        later = {name: drain(channel, name) for name in names}
    return Outcome(expected, found, later, log, {name: path.name for name, path in paths.items()})


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_all_that_is_not_damaged_is_served_in_order(outcome: Outcome, damage: Damage) -> None:
    assert outcome.found[damage.__name__] == outcome.expected[damage.__name__]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_queue_keeps_what_is_published_to_it(outcome: Outcome, damage: Damage) -> None:
    assert outcome.later[damage.__name__] == [NEW]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_told_once(outcome: Outcome, damage: Damage) -> None:
    directory = f"/queues/{outcome.numbers[damage.__name__]}/"
    told = {line["event"] for line in outcome.log if directory in line.get("file", "")}
    assert bool(told) == bool(DAMAGES[damage])
    assert DAMAGES[damage] in told or not told


def test_bad_record_is_set_aside_and_told_once(home: Home) -> None:
    newest = max(directories(home)["q"].glob("*.seg"))
    flip_a_byte(newest, newest.stat().st_size // 2)
    kept = newest.with_suffix(".torn")
    for _ in range(2):
        with home.life(ends_by=signal.SIGKILL) as channel:
            channel.consume("q", "c")
            for _ in left()[:-1]:
                channel.expect_delivery()
        assert home.log().count("bad record") == 1
        assert BODY_BYTES < kept.stat().st_size < 2 * BODY_BYTES


# --- definitions ---


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data directory to be copied."""
    home = Home(tmp_path_factory.mktemp("intact"))
    with home.life() as channel:
        fill(channel, "q")
        channel.bind("q", "amq.topic", "k")
        channel.declare("other", exclusive=False, durable=True)
    return home


@pytest.fixture
def home(intact: Home, home: Home) -> Home:
    shutil.copytree(intact.data_dir, home.data_dir)
    return home


def break_line(home: Home, containing: bytes) -> None:
    path = home.data_dir / "definitions.log"
    lines = path.read_bytes().splitlines(keepends=True)
    (index,) = (i for i, line in enumerate(lines) if containing in line)
    lines[index] = lines[index].replace(b'"', b"'", 1)
    path.write_bytes(b"".join(lines))


def test_broken_line_of_a_binding_loses_that_binding(home: Home) -> None:
    break_line(home, b'"amq.topic"')
    with home.life() as channel:
        channel.publish("amq.topic", "k", b"x", mandatory=True)
        channel.expect_content(m.BasicReturn)
        assert drain(channel, "q") == left()
        assert drain(channel, "other") == []
    assert "its checksum is wrong" in home.log()
    assert (home.data_dir / "definitions.damaged").exists()


def break_line_of_queue(home: Home) -> None:
    break_line(home, b'"name": "q"')


def cut_definitions(home: Home) -> None:
    path = home.data_dir / "definitions.log"
    path.write_bytes(path.read_bytes().partition(b'"name": "q"')[0])


def empty_definitions(home: Home) -> None:
    empty(home.data_dir / "definitions.log")


@pytest.mark.parametrize(
    "damage",
    [
        break_line_of_queue,
        cut_definitions,
        empty_definitions,
    ],
)
def test_lost_definition_of_a_queue_does_not_lose_its_messages(
    home: Home, damage: Callable[[Home], None]
) -> None:
    damage(home)
    with home.life(ends_by=signal.SIGKILL) as channel:
        channel.declare("q", exclusive=False, durable=True)
    assert "queue declared again" in home.log()
    with home.life() as channel:
        assert drain(channel, "q") == left()


def test_foreign_files_in_the_data_directory_are_left_alone(home: Home) -> None:
    foreign = [home.data_dir / "queues" / "backup", home.data_dir / "mine"]
    for path in foreign:
        path.write_text("not ours")
    with home.life() as channel:
        assert drain(channel, "q") == left()
    assert str(foreign[0]) in home.log()
    assert [path.read_text() for path in foreign] == ["not ours"] * 2


def test_definitions_of_yesterday_cost_no_queue_that_was_declared_since(home: Home) -> None:
    with home.life() as channel:
        fill(channel, "old")
    yesterday = (home.data_dir / "definitions.log").read_bytes()
    with home.life(ends_by=signal.SIGKILL) as channel:
        fill(channel, "new")
    (home.data_dir / "definitions.log").write_bytes(yesterday)
    for _ in range(2):
        with home.life() as channel:
            for queue in ("old", "new"):
                assert message_count(channel, queue) == len(left())
    assert "declared again" not in home.log()
