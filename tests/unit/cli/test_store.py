"""`warren store` as a command: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.amqp import AmqpClient
from tests.support.process import BrokerProcess
from tests.unit.storage.data_files import FIRST, SECOND, HandMade, with_queue
from tests.unit.storage.log_files import (
    LogDirectory,
    acks,
    damaged,
    done,
    message,
    offset_of,
    record,
    segment,
)
from warren.amqp.properties import BasicProperties
from warren.broker.commands import DeclareQueue
from warren.broker.message import Message
from warren.cli.main import main
from warren.cli.store_text import message_json, message_text, queues_table
from warren.storage.data_files import DataFiles
from warren.storage.format import SEGMENT_MAGIC, encode_header, encode_record
from warren.storage.inspect import StoredMessage, summarize

END_SECONDS_MAX = 20
TIME_MS = 1_700_000_000_000
TIME = "2023-11-14T22:13:20.000Z"
DAY_MS = 86_400_000


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Store:
    """The command, on one data directory."""

    def __init__(self, data: HandMade, capsys: pytest.CaptureFixture[str]) -> None:
        self.data = data
        self.capsys = capsys

    def run(self, command: str, *arguments: str) -> Ended:
        code = main(["store", command, str(self.data.path), *arguments])
        return Ended(code, *self.capsys.readouterr())

    def lines(self, command: str, *arguments: str) -> list[str]:
        ended = self.run(command, *arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.out.splitlines()

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines("cat", "q", "--json", *arguments)]


@pytest.fixture
def data(tmp_path: Path) -> HandMade:
    return with_queue(tmp_path / "data")[0]


@pytest.fixture
def log(data: HandMade) -> LogDirectory:
    return LogDirectory(data.path / "queues" / "1")


@pytest.fixture
def store(data: HandMade, capsys: pytest.CaptureFixture[str]) -> Store:
    return Store(data, capsys)


# --- ls ---


def table(data: HandMade, vhost: str | None = None) -> list[str]:
    summaries = [summarize(queue) for queue in DataFiles(data.path).queues(vhost)]
    return queues_table(summaries, now_ms=TIME_MS + DAY_MS)


def test_ls_aligns_one_line_a_queue_and_adds_up(data: HandMade) -> None:
    data.declare("a long name", "another").put(1, "seg", segment(1, [b"x" * 5000]))
    data.definitions.record(DeclareQueue(vhost="/", name="no directory", durable=True))
    data.write_definitions()
    size = sum(path.stat().st_size for path in (data.path / "queues" / "1").glob("0*"))
    assert table(data) == [
        "VHOST    QUEUE         MESSAGES   BYTES  SEGMENTS  DIRECTORY  OLDEST",
        "/        no directory         0     0 B         0          -  -",
        f"/        q                    4   {size} B         2          1  2023-11-14T22:13:20Z (23 h)",
        "another  a long name          1  5.1 KB         1          2  2023-11-14T22:13:20Z (23 h)",
        "3 queues, 5 messages, 5.6 KB in 3 segments",
    ]


def test_ls_marks_directories_of_queues_that_are_not_defined(data: HandMade) -> None:
    data.directory(8, DeclareQueue(vhost="/", name="lost"))
    log = data.directory(9, DeclareQueue(vhost="/", name="nameless"))
    (log.path / "queue.json").unlink()
    assert [line.split() for line in table(data)[2:-1]] == [
        ["/", "lost", "0", "0", "B", "0", "8", "-", "not", "defined"],
        ["?", "0", "0", "B", "0", "9", "-", "not", "defined"],
    ]


@pytest.fixture
def parts(log: LogDirectory) -> None:
    """Two parts of the queue, each with its own log."""
    LogDirectory(log.path / "priority-3").put(2, "seg", segment(2, [b"urgent", b"more"]))
    LogDirectory(log.path / "seen").put(1, "seg", segment(1, [b"seen"]))


@pytest.mark.usefixtures("parts")
def test_ls_lists_the_parts_of_a_queue_behind_it(store: Store) -> None:
    lines = [line.split() for line in store.lines("ls")]
    assert lines[0][:4] == ["VHOST", "QUEUE", "PART", "MESSAGES"]
    assert [line[1:3] for line in lines[1:4]] == [["q", "4"], ["q", "priority-3"], ["q", "seen"]]
    assert ["1/priority-3" in line for line in lines[1:4]] == [False, True, False]
    assert " ".join(lines[4]).startswith("1 queues, 7 messages")


@pytest.mark.usefixtures("parts")
def test_ls_as_json_says_which_part_it_is_of(store: Store) -> None:
    content = json.loads(store.run("ls", "--json").out)
    found = [(queue["queue"], queue["part"], queue["messages"]) for queue in content["queues"]]
    assert found == [("q", None, 4), ("q", "priority-3", 2), ("q", "seen", 1)]
    assert content["totals"]["queues"] == 1


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [None, None, None, None, "priority-3", "priority-3", "seen"]),
        (("--part", "priority-3"), ["priority-3", "priority-3"]),
        (("--part", ""), [None] * 4),
    ],
)
def test_cat_prints_the_messages_of_all_parts_or_of_one(
    store: Store, arguments: tuple[str, ...], expected: list[str | None]
) -> None:
    assert [found.get("part") for found in store.objects(*arguments)] == expected


@pytest.mark.usefixtures("parts")
def test_cat_for_people_says_in_which_part_a_message_is(store: Store) -> None:
    heads = [line.split()[1] for line in store.lines("cat", "q", "--part", "seen") if line.startswith("---")]
    assert heads == ["seen"]


def test_cat_of_a_part_that_is_not_there_says_so(store: Store) -> None:
    ended = store.run("cat", "q", "--part", "seen")
    assert (ended.code, ended.err) == (2, "warren store: queue 'q' has no part 'seen'\n")


def test_ls_prints_the_table(store: Store) -> None:
    lines = store.lines("ls")
    assert lines[0].split() == ["VHOST", "QUEUE", "MESSAGES", "BYTES", "SEGMENTS", "DIRECTORY", "OLDEST"]
    assert lines[1].split()[:3] == ["/", "q", "4"]
    assert len(lines) == 3


def test_ls_of_one_vhost_lists_no_others(store: Store) -> None:
    store.data.declare("other", "v")
    assert [line.split()[1] for line in store.lines("ls", "--vhost", "v")[1:-1]] == ["other"]


def test_ls_as_json_has_all_there_is_to_know(store: Store) -> None:
    content = json.loads(store.run("ls", "--json").out)
    (queue,) = content["queues"]
    assert content["totals"] == {"queues": 1, "messages": 4, "bytes": queue["bytes"], "segments": 2}
    assert {name: queue[name] for name in ("vhost", "queue", "defined", "messages", "problems")} == {
        "vhost": "/",
        "queue": "q",
        "defined": True,
        "messages": 4,
        "problems": [],
    }
    assert queue["directory"] == str(store.data.path / "queues" / "1")
    assert queue["oldest"] == {"position": 1, "time_ms": TIME_MS + 1, "time": "2023-11-14T22:13:20.001Z"}
    assert queue["newest"] == {"position": 6, "time_ms": TIME_MS + 6, "time": "2023-11-14T22:13:20.006Z"}
    assert [(part["base"], part["records"], part["ready"]) for part in queue["segments"]] == [
        (1, 3, 2),
        (4, 3, 2),
    ]


def test_ls_of_damaged_files_counts_the_rest_and_points_to_verify(store: Store, log: LogDirectory) -> None:
    log.put(1, "idx", b"garbage")
    ended = store.run("ls")
    assert (ended.code, ended.out.splitlines()[1].split()[2]) == (0, "4")
    assert ended.err == "warren store: something is damaged: see `warren store verify`\n"


def test_names_cannot_write_to_the_terminal(data: HandMade) -> None:
    data.declare("\x1b[31mred\n\udcff")
    assert table(data)[1].split()[1] == r"\x1b[31mred\n\udcff"


# --- cat ---


def stored(message: Message, *, deliveries: int = 0, acked: bool = False) -> StoredMessage:
    return StoredMessage(7, TIME_MS, deliveries, acked, message)


def test_cat_prints_a_message_for_people() -> None:
    content = message(b"two\nlines", "key", "exchange", content_type="text/plain", headers={"a": [1, "x"]})
    assert message_text(stored(content, deliveries=2)).splitlines() == [
        f'--- 7  {TIME}  exchange "exchange"  routing key "key"  redelivered (deliveries: 2)',
        "content_type: text/plain",
        'headers: {"a": [1, "x"]}',
        "delivery_mode: 2",
        "body: 9 bytes",
        "  two",
        "  lines",
    ]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"", ["body: 0 bytes"]),
        ("Grüße 👋".encode(), ["body: 12 bytes", "  Grüße 👋"]),
        (b"\xff\x00\x01", ["body: 3 bytes, not text", "  ff 0001"]),
        (b"\xff" * 65, ["body: 65 bytes, not text", "  " + " ".join(["ffff"] * 32) + " …"]),
        (b"a\x1b[2Jb\tc", ["body: 8 bytes", "  a\\x1b[2Jb\tc"]),
    ],
    ids=["empty", "utf-8", "hex", "long hex", "escapes"],
)
def test_cat_prints_bodies_as_text_or_hex(body: bytes, lines: list[str]) -> None:
    assert message_text(stored(message(body))).splitlines()[2:] == lines


def test_cat_prints_properties_that_are_none_as_hex() -> None:
    wrong = Message(b"\0", b"\0", b"\xff", b"", True)
    assert "properties not understood: ff" in message_text(stored(wrong))
    assert json.loads(message_json(stored(wrong)))["properties"] == {"!bytes": "ff"}


def test_cat_prints_messages_in_order_without_those_done_with(store: Store) -> None:
    lines = store.lines("cat", "q")
    heads = [line.split()[1] for line in lines if line.startswith("---")]
    bodies = [line.strip() for line in lines if line.startswith("  ")]
    assert (heads, bodies) == (["1", "3", "5", "6"], ["one", "three", "five", "six"])


def test_cat_as_json_is_an_object_a_line(store: Store) -> None:
    assert store.objects("--from", "3", "--limit", "1") == [
        {
            "position": 3,
            "time": "2023-11-14T22:13:20.003Z",
            "time_ms": TIME_MS + 3,
            "exchange": "",
            "routing_key": "q",
            "persistent": True,
            "deliveries": 2,
            "redelivered": True,
            "acked": False,
            "properties": {"delivery_mode": 2},
            "body": "three",
        }
    ]


def test_cat_as_json_has_bodies_that_are_no_text_in_base64(store: Store, log: LogDirectory) -> None:
    log.put(7, "seg", segment(7, [b"\xff\x00"]))
    (last,) = store.objects("--from", "7")
    assert last["body_base64"] == "/wA="
    assert "body" not in last


def test_cat_shows_those_done_with_if_asked(store: Store) -> None:
    assert [(o["position"], o["acked"]) for o in store.objects("--acked", "--limit", "3")] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    assert any(line.endswith("done with") for line in store.lines("cat", "q", "--acked"))


@pytest.mark.parametrize(("limit", "count"), [("0", 0), ("1", 1), ("4", 4), ("100", 4)])
def test_cat_prints_no_more_than_the_limit(store: Store, limit: str, count: int) -> None:
    assert len(store.objects("--limit", limit)) == count


def test_cat_finds_the_queue_of_a_vhost(store: Store) -> None:
    store.data.declare("q", "v").put(1, "seg", segment(1, [b"other"]))
    assert [found["body"] for found in store.objects("--vhost", "v")] == ["other"]


def test_cat_tells_a_bad_record_and_goes_on(store: Store, log: LogDirectory) -> None:
    at = offset_of(SECOND, 4, 5)
    log.put(4, "seg", damaged(SECOND, at + 40))
    ended = store.run("cat", "q", "--json")
    assert ended.code == 0
    assert [json.loads(line)["position"] for line in ended.out.splitlines()] == [1, 3, 6]
    assert ended.err.startswith(f"warren store: {log.file(4, 'seg')} at {at}: bad record, ")


# --- verify ---


def test_verify_of_a_sound_directory_ends_with_0(store: Store) -> None:
    (line,) = store.lines("verify")
    assert line.startswith("1 queues, 2 segments, 6 records, ")
    assert line.endswith(" bytes checked: all sound")


def test_verify_of_damage_ends_with_1(store: Store, log: LogDirectory) -> None:
    at = offset_of(FIRST, 1, 2)
    log.put(1, "seg", damaged(FIRST, at + 40))
    code, out, err = store.run("verify")
    first, last = out.splitlines()
    assert (code, err) == (1, "")
    assert first.startswith(f"damage: {log.file(1, 'seg')} at {at}: bad record, ")
    assert last.endswith("bytes checked: 1 damage")


def test_verify_of_what_a_crash_leaves_ends_with_0(store: Store, log: LogDirectory) -> None:
    log.put(4, "seg", SECOND + b"torn")
    first, last = store.lines("verify")
    assert first.startswith(f"harmless: {log.file(4, 'seg')} at {len(SECOND)}: torn tail, 4 bytes")
    assert last.endswith("bytes checked: 1 harmless")


# --- what cannot be read ---


def unreadable(file: Path) -> None:
    """Make a file that not even root can read: a directory."""
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("command", [["ls"], ["cat", "q"], ["verify"]], ids=lambda command: command[0])
def test_file_that_cannot_be_read_is_one_line_and_exit_2(
    store: Store, log: LogDirectory, command: list[str]
) -> None:
    unreadable(log.file(4, "seg"))
    ended = store.run(*command)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith("warren store: ")
    assert str(log.file(4, "seg")) in ended.out + ended.err


@pytest.mark.parametrize("command", [["ls"], ["cat", "q"], ["verify"]], ids=lambda command: command[0])
def test_definitions_that_cannot_be_read_are_one_line_and_exit_2(store: Store, command: list[str]) -> None:
    unreadable(store.data.path / "definitions.log")
    ended = store.run(*command)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "definitions.log" in ended.err


@pytest.mark.parametrize("command", [["ls"], ["cat"], ["verify"]], ids=lambda command: command[0])
@pytest.mark.parametrize(("name", "reason"), [("absent", "no such directory"), ("", "not a data directory")])
def test_wrong_directory_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], name: str, reason: str
) -> None:
    queue = ["q"] if command == ["cat"] else []
    assert main(["store", *command, str(tmp_path / name), *queue]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(tmp_path / name) in err
    assert reason in err


def test_unknown_queue_is_one_line_and_exit_2(store: Store) -> None:
    assert store.run("cat", "x") == (2, "", "warren store: no queue 'x' in vhost '/'\n")


@pytest.mark.parametrize("arguments", [["--limit", "-1"], ["--from", "x"], ["--limit", "all"]])
def test_wrong_argument_is_exit_2(store: Store, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        store.run("cat", "q", *arguments)
    assert ended.value.code == 2
    assert "not a whole number" in store.capsys.readouterr().err


# --- beside others ---


def test_nothing_is_written(store: Store, log: LogDirectory) -> None:
    log.put(4, "seg", SECOND + b"torn")
    log.put(4, "acks", acks(4, done(4)) + b"torn")
    before = store.data.state()
    for command in (["ls"], ["ls", "--json"], ["cat", "q"], ["verify"]):
        assert store.run(*command).code == 0
    assert store.data.state() == before


@pytest.fixture
def long_queue(data: HandMade, log: LogDirectory) -> None:
    """A queue whose messages are more than fits into a pipe."""
    parts = [encode_record(position, 0, message(b"x" * 1000)) for position in range(7, 1000)]
    log.put(7, "seg", encode_header(SEGMENT_MAGIC, 7) + b"".join(parts))


@pytest.mark.usefixtures("long_queue")
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_reader_that_has_had_enough_ends_it_quietly(data: HandMade, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "warren", "store", "cat", str(data.path), "q", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"1" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(END_SECONDS_MAX) == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("store") / "data") as process:
        with AmqpClient.connect(process.address) as client:
            channel = client.channel()
            channel.declare("q", durable=True, exclusive=False)
            for body in (b"one", b"two"):
                channel.publish("", "q", body, BasicProperties(delivery_mode=2))
            channel.get("q")
        yield process


@pytest.mark.parametrize(
    ("command", "expected"),
    [(["ls"], "1 queues, 1 messages"), (["cat", "q"], "--- 2"), (["verify"], "2 records")],
    ids=["ls", "cat", "verify"],
)
def test_directory_that_a_broker_uses_is_read_with_a_warning(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], command: list[str], expected: str
) -> None:
    name, *queue = command
    assert main(["store", name, str(broker.data_dir), *queue]) == 0
    out, err = capsys.readouterr()
    assert expected in out
    using = f"process {broker.process.pid} is using {broker.data_dir}"
    assert err == f"warren store: {using}: the output is a snapshot\n"


def test_directory_on_a_read_only_file_system_is_read(data: HandMade) -> None:
    """Run in a mount namespace of its own, if this system allows it."""
    mount = f"mount --bind {data.path} {data.path} && mount -o remount,bind,ro {data.path}"
    verify = f"exec {sys.executable} -m warren store verify {data.path}"
    tried = f"{mount} && ! touch {data.path}/x 2>/dev/null && {verify}"
    unshare = ["unshare", "--mount", "--map-root-user", "sh", "-c", tried]
    if os.geteuid() == 0:
        unshare.remove("--map-root-user")
    ended = subprocess.run(unshare, capture_output=True, text=True, check=False, timeout=END_SECONDS_MAX)
    if "unshare" in ended.stderr or "mount" in ended.stderr:
        pytest.skip(f"no mounts here: {ended.stderr.strip()}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("all sound\n")


def test_torn_record_is_not_printed(store: Store, log: LogDirectory) -> None:
    log.put(4, "seg", SECOND + record(7, b"seven")[:-8])
    assert [found["position"] for found in store.objects()] == [1, 3, 5, 6]
