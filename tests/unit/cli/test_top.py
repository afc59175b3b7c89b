"""`warren top`: what the keys choose, what is asked of the broker, and what is shown."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from tests.support.recorded_api import RecordedApi
from warren.cli.main import main
from warren.cli.top_view import CONNECTIONS, QUEUES, RATE_IN, Choice, Snapshot, draw

END_SECONDS_MAX = 60
OVERVIEW: dict[str, Any] = {
    "product_name": "WarrenMQ",
    "product_version": "1.2",
    "cluster_name": "here",
    "queue_totals": {"messages_ready": 1234, "messages_unacknowledged": 5},
    "object_totals": {"queues": 2, "connections": 1},
    "message_stats": {"publish_details": {"rate": 99.6}},
}
NODE = {"name": "n", "mem_used": 2_500_000, "mem_limit": 5e9, "disk_free": 7e9, "mem_alarm": True}
ROW = {"vhost": "/", "name": "orders", "messages_ready": 1234, "memory": 2048, "message_stats": {}}
PAGE = {"items": [ROW], "filtered_count": 2, "page_count": 1}


@pytest.fixture
def api() -> Iterator[RecordedApi]:
    with RecordedApi() as running:
        yield running


def shown(snapshot: Snapshot, choice: Choice) -> str:
    console = Console(width=160, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    console.print(draw(snapshot, choice))
    console.file.close()
    return console.export_text()


def test_view_has_totals_rates_alarms_and_queues() -> None:
    text = shown(Snapshot(OVERVIEW, [NODE], [ROW], 2), Choice())
    for part in ("WarrenMQ 1.2", "1,234 ready", "in 100/s", "ALARM: memory", "memory 2.5 MB of 5.0 GB"):
        assert part in text
    row = next(line for line in text.splitlines() if "orders" in line)
    assert row.split() == ["/", "orders", "1,234", "2.0", "kB"]
    assert "1 of 2 queues" in text


def test_node_without_alarms_says_so() -> None:
    assert "no alarms" in shown(Snapshot(OVERVIEW, [NODE | {"mem_alarm": False}], [], 0), Choice())


def test_keys_sort() -> None:
    choice = Choice()
    assert choice.press("i")
    assert choice.sort == RATE_IN
    assert "in/s ▼" in shown(Snapshot(OVERVIEW, [], [], 0), choice)
    assert choice.press("m")
    assert choice.sort == "memory"


def test_tab_changes_to_connections_and_back() -> None:
    choice = Choice()
    choice.press("\t")
    assert (choice.view, choice.sort) == (CONNECTIONS, CONNECTIONS.sort)
    choice.press("\t")
    assert choice.view is QUEUES


def test_text_behind_a_slash_filters() -> None:
    choice = Choice()
    choice.press("/orq")
    choice.press("\x7fd\n")
    assert (choice.text, choice.typing, choice.sort) == ("ord", False, "messages")
    choice.press("/\x1b")
    assert choice.text == ""


@pytest.mark.parametrize("key", ["q", "\x1b"])
def test_q_and_escape_end(key: str) -> None:
    assert not Choice().press(key)


@pytest.mark.parametrize("key", ["\x1b[A", "\x1bOB", "\x1b[5~", "\x1b[1;5C"])
def test_arrows_and_the_like_do_nothing(key: str) -> None:
    choice = Choice(text="ord")
    assert choice.press(key)
    assert choice == Choice(text="ord")


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("--connections -p a/b", "/api/vhosts/a%2Fb/connections"),
        ("--connections", "/api/connections"),
        ("", "/api/queues"),
    ],
)
def test_rows_are_those_of_the_vhost_that_was_named(api: RecordedApi, words: str, path: str) -> None:
    api.answers = [(200, PAGE), (200, OVERVIEW), (200, [NODE])]
    assert main(["top", "--once", *words.split(), "--url", api.url]) == 0
    assert api.requests[0].target.partition("?")[0] == path


def test_connections_cannot_be_sorted_by_what_they_do_not_have(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", "--once", "--connections", "--sort", "memory", "--url", api.url])
    assert ended.value.code == 2
    assert "connections cannot be sorted by memory" in capsys.readouterr().err
    assert api.requests == []


@pytest.mark.parametrize("interval", ["0", "0.1", "x"])
def test_broker_is_not_asked_without_a_pause(
    api: RecordedApi, interval: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", "--interval", interval, "--url", api.url])
    assert ended.value.code == 2
    assert f"not a number of seconds of at least 0.2: '{interval}'" in capsys.readouterr().err


def test_broker_sorts_and_filters_so_that_one_page_is_enough(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, PAGE), (200, OVERVIEW), (200, [NODE])]
    assert main(["top", "--once", "--sort", "memory", "--filter", "ord", "-p", "v", "--url", api.url]) == 0
    target = api.requests[0].target
    assert target.startswith("/api/queues/v?page=1&page_size=20&sort=memory&sort_reverse=true&columns=")
    assert target.endswith("&name=ord&use_regex=false")
    out = capsys.readouterr().out
    assert out.startswith("vhost\tname\t")
    assert "\t1234\t" in out


def test_once_as_json(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(200, [ROW]), (200, OVERVIEW), (403, {"error": "not_authorised"})]
    assert main(["top", "--json", "--connections", "--url", api.url]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["connections"], shown["nodes"]) == ([ROW], [])


@pytest.mark.slow
def test_live_view_on_a_terminal_ends_with_q(api: RecordedApi) -> None:
    api.answers = [(200, PAGE), (200, OVERVIEW), (200, [NODE])] * 1000
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "warren", "top", "--url", api.url, "--interval", "30"]
    environment = os.environ | {"TERM": "xterm", "LINES": "40", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        seen = b""
        while b"orders" not in seen:
            seen += os.read(ours, 65536)
        os.write(ours, b"q")
        assert process.wait(END_SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
