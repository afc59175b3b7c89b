"""The data directory: who may use it, and what may happen to it between two brokers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.storage.bulk import NumberPublisher
from tests.storage.home import WAIT_SECONDS_MAX, Home, connected, message_count
from tests.support.channel import AmqpChannel
from tests.support.process import BrokerProcess

USAGE_ERROR = 2


def fill(channel: AmqpChannel, count: int = 3) -> None:
    channel.declare("q", exclusive=False, durable=True)
    NumberPublisher(channel, "q").publish(range(count))


def refusal(data_dir: Path, log: Path) -> str:
    """What a broker says that cannot use the directory: one line."""
    process = BrokerProcess(data_dir)
    process.log_path = log
    process.launch()
    output, _ = process.process.communicate(timeout=WAIT_SECONDS_MAX)
    assert output == ""
    assert process.process.returncode == USAGE_ERROR
    (line,) = process.log().splitlines()
    assert line.startswith("warren serve: ")
    return line


def test_second_broker_is_refused_and_told_which_process_has_it(home: Home) -> None:
    with home.broker() as process, connected(process) as channel:
        fill(channel)
        line = refusal(home.data_dir, home.path / "second.log")
        assert str(home.data_dir) in line
        assert f"process {process.process.pid}" in line
        fill(channel)
        assert message_count(channel, "q") == 6
    with home.life() as channel:
        assert message_count(channel, "q") == 6


@pytest.mark.parametrize("version", [b"2\n", b"\xff\n\0" * 1_000])
def test_unknown_version_is_refused_and_nothing_is_touched(home: Home, version: bytes) -> None:
    home.data_dir.mkdir()
    (home.data_dir / "VERSION").write_bytes(version)
    line = refusal(home.data_dir, home.path / "refused.log")
    assert "version" in line
    assert len(line) < 500
    assert (home.data_dir / "VERSION").read_bytes() == version
    assert {path.name for path in home.data_dir.iterdir()} == {"VERSION", "lock"}


def test_two_brokers_in_two_directories_do_not_notice_each_other(home: Home, tmp_path: Path) -> None:
    other_home = Home(tmp_path / "other")
    other_home.path.mkdir()
    with home.life() as channel, other_home.life() as other:
        fill(channel, 3)
        fill(other, 5)
        assert message_count(channel, "q") == 3
        assert message_count(other, "q") == 5


def test_directory_can_be_moved(home: Home) -> None:
    with home.life() as channel:
        fill(channel)
    home.data_dir = home.data_dir.rename(home.path / "moved")
    with home.life() as channel:
        assert len(channel.drain("q")) == 3


def test_notes_of_a_killed_broker_do_not_matter_not_even_as_garbage(home: Home) -> None:
    with home.life(ends_by=signal.SIGKILL) as channel:
        fill(channel)
    (home.data_dir / "running").write_bytes(b"\xff\xfe garbage")
    (home.data_dir / "lock").write_bytes(b"\xff\xfe garbage")
    with home.life() as channel:
        assert message_count(channel, "q") == 3


def test_whatever_is_in_the_folder_for_transient_messages_goes(home: Home) -> None:
    left = home.data_dir / "transient"
    (left / "1").mkdir(parents=True)
    (left / "1" / "file").write_text("x")
    (left / "2").write_text("x")
    with home.life() as channel:
        channel.declare()
        assert list(left.iterdir()) == []


def test_directory_that_is_a_file_is_refused(home: Home) -> None:
    home.data_dir.write_text("x")
    assert str(home.data_dir) in refusal(home.data_dir, home.path / "refused.log")
