"""A command that cannot work ends with one line that names the option to change, against a live broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
from pyspark.sql import SparkSession

from tests.support.process import BrokerProcess
from tests.support.segments import DataDirectory
from warren.cli import pipeline
from warren.pipeline import java, session

STREAM = {"x-queue-type": "stream"}
USERS = """
[[users]]
name = "guest"
password = "guest"
[users.permissions."/"]
configure = ".*"
write = ".*"
read = ".*"

[[users]]
name = "stranger"
password = "secret"
[users.permissions."/"]
configure = ""
write = ""
read = "^other"
"""
MESSAGES = 10


@dataclass(frozen=True)
class Place:
    """The names that a test's command can contain: `{url}`, `{data}`…"""

    url: str
    data: str
    nobody: str
    empty: str

    def words(self, text: str) -> list[str]:
        return [word.format(**vars(self)) for word in text.split()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker with a stream, `s`, and a queue, `q`."""
    home = tmp_path_factory.mktemp("bad-input")
    (home / "warren.toml").write_text(USERS)
    (home / "empty").mkdir()
    with BrokerProcess(home / "data", "--config", str(home / "warren.toml")) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            channel.queue_declare("s", durable=True, arguments=STREAM)
            for number in range(MESSAGES):
                channel.basic_publish("", "s", b"%d" % number)
        yield Place(broker.http_url, str(broker.data_dir), f"127.0.0.1:{closed_port()}", str(home / "empty"))


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def one_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands use the tests' Spark instead of starting and stopping one of their own."""
    monkeypatch.setattr(session, "open_session", lambda **_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _self: None)


def outcome(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str, str]:
    """The exit code, the output, and the line with the error."""
    try:
        code = pipeline.main([*words, "--quiet"])
    except SystemExit as ended:  # usage comes before the line
        return int(str(ended.code)), "", capsys.readouterr().err.splitlines()[-1].partition("error: ")[2]
    shown, told = capsys.readouterr()
    assert told.count("\n") <= 1
    return code, shown, told.partition(": ")[2].strip()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("audit --url {url} --queue x", "no queue 'x' in vhost '/': change the option --queue, or --vhost"),
        (
            "archive --path {data} --queue x --once --to {empty}/archive",
            "no queue 'x' in vhost '/': change the option --queue, or --vhost",
        ),
        (
            "archive --path {data} --queue q --once --to {empty}/archive",
            (
                "'q' is a classic queue, which readStream cannot read: read it in batch (archive --snapshot, "
                "flow without --follow and --once), or change the option --queue to a stream"
            ),
        ),
        (
            "audit --url {url} --queue s --user stranger --password secret",
            (
                "user 'stranger' may not read queue 's': read access to queue 's' in vhost '/' refused "
                "for user 'stranger': change the option --user"
            ),
        ),
        (
            "archive --url {url} --queue s --password wrong --once --to {empty}/archive",
            (
                "{url} does not let user 'guest' in: Login failed: "
                "change the options --user and --password, or --vhost"
            ),
        ),
        (
            "audit --url {url} --queue s --vhost v",
            (
                "{url} does not let user 'guest' in: User not authorised to access virtual host: "
                "change the options --user and --password, or --vhost"
            ),
        ),
        (
            'archive --url {url} --queue s --from-offset {{"z":1}} --once --to {empty}/archive',
            "--from-offset lacks s: give an offset for each queue that is read",
        ),
        ("audit --path {data} --queue s --to-offset 99", "--to-offset is 99, but stream 's' ends at 10"),
        (
            "archive --url http://{nobody} --queue s --once --to {empty}/archive",
            "no broker answers at http://{nobody}: [Errno 111] Connection refused: change the option --url",
        ),
        (
            "audit --path {empty} --queue s",
            "{empty} is not a data directory: it has no file VERSION: change the option --path",
        ),
        (
            "replay --path {data} --queue s --amqp amqp://{nobody} --exchange e",
            "cannot connect to {nobody}: Connection refused: change the option --amqp",
        ),
    ],
)
@pytest.mark.usefixtures("one_spark")
def test_what_is_not_there_or_not_allowed_is_one_line_and_exit_code_1(
    place: Place, capsys: pytest.CaptureFixture[str], words: str, line: str
) -> None:
    assert outcome(capsys, place.words(words)) == (1, "", line.format(**vars(place)))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--from-offset {{", "--from-offset is neither earliest, latest, a number nor JSON: "),
        ("--from-offset [1]", "--from-offset must be a JSON object of whole numbers, such as "),
        ('--to-offset {{"s":"1"}}', "--to-offset must be a JSON object of whole numbers, such as "),
        ('--from-offset {{"s":-3}}', "--from-offset has -3 for 's': give an offset, "),
        ("--url nonsense", "the option --url is 'nonsense', which is not like http://host:15672"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2_before_spark_starts(
    place: Place, capsys: pytest.CaptureFixture[str], words: str, line: str
) -> None:
    code, _, told = outcome(capsys, place.words("audit --queue s --url {url} " + words))
    assert (code, told[: len(line)]) == (2, line)


@pytest.mark.usefixtures("one_spark")
def test_segment_that_cannot_be_opened_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    stream = data.queue("s")
    segment = stream.append(5)
    stream.append(5)
    segment.unlink()
    segment.mkdir()
    assert outcome(capsys, ["audit", "--path", str(tmp_path), "--queue", "s"]) == (
        1,
        "",
        f"{segment} at 0: Is a directory: see the option --path",
    )


@pytest.mark.usefixtures("one_spark")
def test_damage_is_named_and_can_be_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stream = DataDirectory(tmp_path).queue("s")
    segment = stream.append(5)
    stream.append(5)
    whole = segment.read_bytes()
    at = whole.index(b"m2")
    segment.write_bytes(whole[:at] + b"!" + whole[at + 1 :])
    words = ["audit", "--path", str(tmp_path), "--queue", "s"]

    code, shown, told = outcome(capsys, words)
    assert (code, shown) == (1, "")
    assert told.startswith(f"{segment} is damaged at byte ")
    assert told.endswith(", behind offset 1; give --allow-data-loss to go on without them")

    code, shown, told = outcome(capsys, [*words, "--allow-data-loss", "--allow-gaps"])
    assert (code, told) == (0, "")
    assert ["offsets", "missing", "in", "gaps", "1"] in [line.split() for line in shown.splitlines()]


@pytest.mark.usefixtures("one_spark")
def test_torn_record_at_the_end_is_the_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    segment = DataDirectory(tmp_path).queue("s").append(5)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 1)

    code, shown, told = outcome(capsys, ["audit", "--path", str(tmp_path), "--queue", "s"])
    assert (code, told) == (0, "")
    assert ["messages", "read", "4"] in [line.split() for line in shown.splitlines()]


def test_without_java_one_line_names_java_home(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)  # as if the extra had not brought one
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", place.empty)

    assert outcome(capsys, place.words("audit --path {data} --queue s")) == (
        1,
        "",
        (
            "Spark needs Java 17, 21 or 25 (from 25.0.3): point JAVA_HOME at one, or pip install "
            "'warrenmq[spark]', which brings one, and these do not suit: /nowhere (no version)"
        ),
    )
