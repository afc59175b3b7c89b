"""The demo of a cluster, without its processes: what it shows, and what it takes. The rest is in
tests/cluster/real/test_demo.py.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from pathlib import Path

import pytest

from warren.cli.cluster_demo.child import Child
from warren.cli.cluster_demo.log_view import LogView
from warren.cli.cluster_demo.stdin_lines import read_lines
from warren.cli.cluster_demo.welcome import welcome
from warren.cli.main import main

SECONDS_MAX = 60


class Lost(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def view_of(out: io.StringIO) -> LogView:
    return LogView(out, ["a", "b"], on_lost=lambda: None)


def shown(out: io.StringIO) -> list[str]:
    """The lines without their times."""
    return [re.sub(r"^[0-9:.]{12} +", "", line) for line in out.getvalue().splitlines()]


def role(shard: int, role: str) -> str:
    return json.dumps({"event": "a shard's role", "level": "info", "shard": shard, "role": role})


def test_a_line_of_a_log_is_shown_with_its_node_and_fields() -> None:
    out = io.StringIO()
    view = view_of(out)
    line = {"event": "broker started", "level": "info", "timestamp": "t", "port": 5672, "bind": "[b]"}
    assert view.log_line("a", json.dumps(line))
    view.tell("a is killed")
    assert shown(out) == ["a broker started port=5672 bind=[b]", "demo a is killed"]
    assert "\x1b" not in out.getvalue(), "colours are for terminals"


def test_what_is_no_line_of_the_log_is_shown_as_it_is() -> None:
    out = io.StringIO()
    view = view_of(out)
    for line in ("warren serve: no", "[1]", "{}", '"text"', "\x1b[2J"):
        assert not view.log_line("b", line)
    assert shown(out) == ["b warren serve: no", "b [1]", "b {}", 'b "text"', "b \\x1b[2J"]


def test_tracebacks_are_shown_line_by_line() -> None:
    out = io.StringIO()
    view_of(out).log_line(
        "a", json.dumps({"event": "internal error", "level": "error", "exception": "one\ntwo"})
    )
    assert shown(out) == ["a internal error", "a one", "a two"]


def test_while_brokers_start_only_what_is_wrong_is_shown() -> None:
    out = io.StringIO()
    view = view_of(out)
    view.is_brief = True
    for level in ("info", "warning"):
        view.log_line("a", json.dumps({"event": "it is so", "level": level}))
    assert shown(out) == ["a it is so"]


async def test_roles_of_many_shards_are_told_in_one_line() -> None:
    out = io.StringIO()
    view = view_of(out)
    for shard in (3, 1, 2):
        view.log_line("a", role(shard, "follower"))
        view.log_line("a", role(shard, "opening"))
    for shard in (1, 3):
        view.log_line("a", role(shard, "open"))
    view.log_line("b", role(1, "suspended"))
    async with asyncio.timeout(SECONDS_MAX):
        while view.roles:  # noqa: ASYNC110 - a timer of the view's tells them
            await asyncio.sleep(0.01)
    assert shown(out)[0] == "a leads shards 1 3", "the last role counts, and opening does not last"
    assert shown(out)[1].startswith("b holds back")
    assert shown(out)[1].endswith("shard 1")


def test_the_demo_ends_when_nobody_reads_its_log() -> None:
    lost: list[bool] = []
    LogView(Lost(), ["a"], on_lost=lambda: lost.append(True)).tell("hello")
    assert lost == [True]


async def test_lines_of_a_pipe_are_read_as_they_come(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    read_lines(reading, lines.put_nowait, lambda: lines.put_nowait(None))
    async with asyncio.timeout(SECONDS_MAX):
        os.write(writing, b"kill a\nsta")
        assert await lines.get() == "kill a"
        os.write(writing, b"tus\n")
        assert await lines.get() == "status"
        os.close(writing)
        assert await lines.get() is None
    os.close(reading)


def test_the_welcome_names_where_clients_connect_and_what_to_try(tmp_path: Path) -> None:
    children = [Child(name, tmp_path, [], view_of(io.StringIO())) for name in "ab"]
    for number, child in enumerate(children):
        child.port, child.http_port = 5672 + number, 15672 + number
    text = welcome(children, 12).plain
    for words in ("amqp://guest:guest@127.0.0.1:5673", "WARREN_URL=http://127.0.0.1:15672", "kill a", "quit"):
        assert words in text


def test_without_etcd_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["cluster", "demo"]) == 1
    assert capsys.readouterr().err == (
        "warren cluster demo: etcd is not installed: apt-get install etcd-server\n"
    )


@pytest.mark.parametrize("words", ["--nodes 2", "--nodes 10", "--port 65535"])
def test_numbers_that_make_no_sense_are_refused(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "demo", *words.split()])
    assert ended.value.code == 2
