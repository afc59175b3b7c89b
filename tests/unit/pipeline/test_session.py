"""The errors when a Spark session cannot be opened. Sessions that do open are in tests/pipeline."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from warren.pipeline import java, session
from warren.pipeline.errors import PipelineError
from warren.pipeline.session import open_session


def text_of_failure(*, master: str = "local[1]", remote: str | None = None) -> str:
    with pytest.raises(PipelineError) as caught:
        open_session(app_name="test", master=master, remote=remote)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def closed_port() -> int:
    """A port where nobody listens: the kernel chose it a moment ago, and it is closed again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_without_the_extra_the_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "pyspark" else object())

    assert text_of_failure() == "the data pipeline needs Spark: pip install 'warrenmq[spark]'"


def test_without_java_the_line_names_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "JAVA_HOME" in text_of_failure()


@pytest.mark.parametrize(
    "url", ["spark://127.0.0.1:{}", "spark://127.0.0.1:{0},127.0.0.1:{0}", "k8s://https://127.0.0.1:{}"]
)
def test_master_that_does_not_answer_is_named_with_its_option(closed_port: int, url: str) -> None:
    master = url.format(closed_port)

    assert text_of_failure(master=master).startswith(f"nobody answers at --master {master}: ")


def test_connect_server_that_does_not_answer_is_named_with_its_option(closed_port: int) -> None:
    remote = f"sc://127.0.0.1:{closed_port}"

    assert text_of_failure(remote=remote).startswith(f"nobody answers at --remote {remote}: ")


def test_master_with_a_nonsense_port_is_named_with_its_option() -> None:
    assert "--master spark://host:x" in text_of_failure(master="spark://host:x")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            ": org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat a.b\n",
            "Could not parse Master URL: 'x'",
        ),
        ("plain words\nmore", "plain words"),
        ("", "RuntimeError"),
    ],
)
def test_of_what_spark_says_the_first_line_of_meaning_is_kept(said: str, line: str) -> None:
    assert session._first_line(RuntimeError(said)) == line


def test_import_of_warren_does_not_import_spark() -> None:
    code = "import sys, warren; warren.spark_session; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sockets_of_workers_are_where_only_this_user_can_open_them() -> None:
    (directory,) = {session._socket_conf()["spark.python.unix.domain.socket.dir"] for _ in range(2)}

    assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o700


def test_where_names_of_sockets_would_be_too_long_workers_use_tcp(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(session, "_socket_directory", session._socket_directory.__wrapped__)

    assert session._socket_conf() == {}
