"""`warren serve` as a command: what it prints, where its settings come from, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pytest
import uvloop

from tests.support.amqp import AmqpClient
from tests.support.errors import EndedError
from tests.support.log_lines import LogLines
from tests.support.process import RUN_WARREN, Address, BrokerProcess
from warren.amqp import methods as m
from warren.cli.main import main

pytestmark = pytest.mark.slow

END_SECONDS_MAX = 20
USAGE_ERROR = 2


def start(directory: Path, *flags: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command in this directory, so that its data and `warren.toml` are there."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
    http_port = () if "--http-port" in flags else ("--http-port", "0")
    return subprocess.Popen(
        [sys.executable, "-m", "warren", "serve", *http_port, *flags],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean | (environment or {}),
    )


def fail(directory: Path, *flags: str, environment: dict[str, str] | None = None) -> str:
    """The one line on stderr of a command that ends with a usage error."""
    with start(directory, *flags, environment=environment) as process:
        try:
            out, err = process.communicate(timeout=END_SECONDS_MAX)
        finally:
            process.kill()
    assert (process.returncode, out) == (USAGE_ERROR, ""), err
    # Lines of the log may come first. The reason is one line, without a traceback.
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, err
    assert lines[0].startswith("warren serve: ")
    return lines[0]


class Serving:
    """A broker that has printed its line `ready`; `end` returns its other output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.ready = process.stdout.readline()
        self.address = Address("", 0)
        if self.ready:
            host, _, port = self.ready.split()[1].removeprefix("amqp=").rpartition(":")
            self.address = Address(host, int(port))

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=END_SECONDS_MAX)
        return self.process.returncode, out, err


@contextmanager
def serving(directory: Path, *flags: str, environment: dict[str, str] | None = None) -> Iterator[Serving]:
    process = start(directory, *flags, environment=environment)
    with process:
        try:
            yield Serving(process)
        finally:
            process.kill()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# --- failures outside the broker ---


def test_port_in_use_is_one_line_and_exit_2(tmp_path: Path, taken_port: int) -> None:
    line = fail(tmp_path, "--port", str(taken_port))
    assert str(taken_port) in line
    assert "in use" in line


def test_http_port_in_use_is_one_line_that_names_the_option_and_exit_2(
    tmp_path: Path, taken_port: int
) -> None:
    line = fail(tmp_path, "--port", "0", "--http-port", str(taken_port))
    assert f"http_port = {taken_port} (--http-port" in line
    assert "in use" in line


def test_config_that_is_not_there_is_one_line_and_exit_2(tmp_path: Path) -> None:
    assert "absent.toml" in fail(tmp_path, "--config", "absent.toml")


def test_policy_for_a_vhost_that_is_not_there_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "warren.toml").write_text("[[policies]]\nvhost = 'v'\nname = 'p'\ndefinition.expires = 1")
    assert "there is no vhost 'v'" in fail(tmp_path, "--port", "0")


def test_data_directory_that_cannot_be_made_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file" in fail(tmp_path, "--port", "0", "--data-dir", "file/below")


def test_address_that_is_not_ours_is_one_line_and_exit_2(tmp_path: Path) -> None:
    assert "192.0.2.1" in fail(tmp_path, "--port", "0", "--bind", "192.0.2.1")


# --- wrong settings, which are refused before anything starts ---


class Refuse(Protocol):
    def __call__(self, *flags: str) -> str: ...


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """The command's error line for a setting, found without starting a process."""

    def started(serving: Coroutine[object, object, None]) -> None:
        serving.close()
        raise AssertionError("the broker was started")

    def run(*flags: str) -> str:
        assert main(["serve", *flags]) == USAGE_ERROR
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        return err

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(uvloop, "run", started)
    for name in os.environ:
        if name.startswith("WARREN_"):
            monkeypatch.delenv(name)
    return run


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("port", "http"),
        ("port", "65536"),
        ("port", "-1"),
        ("log_level", "loud"),
        ("heartbeat", "often"),
        ("frame_max", "100"),
        ("channel_max", "0"),
        ("memory_watermark", "0"),
        ("memory_watermark", "nan"),
        ("memory_watermark", "inf"),
        ("max_message_bytes", "0"),
    ],
)
def test_wrong_value_in_the_environment_names_the_setting(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    monkeypatch.setenv(f"WARREN_{setting.upper()}", value)
    line = refuse()
    assert setting in line
    assert value in line


@pytest.mark.parametrize(
    "line",
    ['port = "http"', "port = true", "port = 1.5", "log_level = 7", "users = 1", 'vhosts = "/"'],
)
def test_wrong_value_in_the_file_names_the_setting(refuse: Refuse, tmp_path: Path, line: str) -> None:
    (tmp_path / "warren.toml").write_text(line)
    assert line.split(maxsplit=1)[0] in refuse()


def test_wrong_value_of_a_flag_names_the_setting(refuse: Refuse) -> None:
    assert "port" in refuse("--port", "http")


def test_unknown_key_in_the_file_is_named(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "warren.toml").write_text("prot = 1\nport = 0\n")
    assert "prot" in refuse()


def test_config_that_is_not_there_is_named(refuse: Refuse) -> None:
    assert "absent.toml" in refuse("--config", "absent.toml")


def test_config_that_is_a_directory_is_named(refuse: Refuse, tmp_path: Path) -> None:
    assert str(tmp_path) in refuse("--config", str(tmp_path))


@pytest.mark.parametrize("content", [b"port = ", b"port = 0\nport = 1", b"\xff\xfe"])
def test_config_that_is_not_toml_is_named(refuse: Refuse, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    assert "bad.toml" in refuse("--config", "bad.toml")


def test_unknown_flag_is_exit_2(tmp_path: Path) -> None:
    with start(tmp_path, "--prot", "1") as process:
        out, err = process.communicate(timeout=END_SECONDS_MAX)
    assert (process.returncode, out) == (USAGE_ERROR, "")
    assert "--prot" in err


# --- where settings come from ---


def heartbeat_of(address: Address) -> int:
    """The heartbeat interval, a setting that every client is told."""
    client = AmqpClient(address)
    try:
        client.start()
        client.authenticate()
        return client.expect(0, m.ConnectionTune).heartbeat
    finally:
        client.abort()


def test_environment_goes_over_file_goes_over_defaults(tmp_path: Path) -> None:
    (tmp_path / "warren.toml").write_text("port = 0\nheartbeat = 11\nchannel_max = 100\n")
    with serving(tmp_path, environment={"WARREN_HEARTBEAT": "12"}) as broker:
        client = AmqpClient(broker.address)
        client.start()
        client.authenticate()
        offered = client.expect(0, m.ConnectionTune)
        client.abort()
        assert (offered.heartbeat, offered.channel_max, offered.frame_max) == (12, 100, 131_072)


def test_flags_go_over_environment(tmp_path: Path, taken_port: int) -> None:
    with serving(tmp_path, "--port", "0", environment={"WARREN_PORT": str(taken_port)}) as broker:
        assert broker.address.port not in {0, taken_port}


def test_config_can_be_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("port = 0\nheartbeat = 13\n")
    with serving(tmp_path, environment={"WARREN_CONFIG": "mine.toml"}) as broker:
        assert heartbeat_of(broker.address) == 13


def test_two_brokers_on_port_0_get_ports_of_their_own(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--port", "0", "--data-dir", "one") as one,
        serving(tmp_path, "--port", "0", "--data-dir", "other") as other,
    ):
        assert one.address.port != other.address.port
        assert heartbeat_of(one.address) == heartbeat_of(other.address) == 60


# --- SIGHUP ---

HANG_UP_WHILE_STARTING = """
import os, signal
from warren.server.app import Broker
recover = Broker._recover

async def hang_up(broker):
    os.kill(os.getpid(), signal.SIGHUP)
    await recover(broker)

Broker._recover = hang_up
"""


class HungUp(BrokerProcess):
    """Gets SIGHUP while it starts."""

    def entry(self) -> list[str]:
        return ["-c", HANG_UP_WHILE_STARTING + RUN_WARREN]


def test_reload_that_is_asked_for_during_the_start_comes_after_it(tmp_path: Path) -> None:
    with HungUp(tmp_path / "data") as broker, LogLines(broker.http_url, after=0) as log:
        log.wait_for("settings reloaded")


# --- the end ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_closes_connections_with_320_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--port", "0") as broker:
        client = AmqpClient.connect(broker.address)
        broker.process.send_signal(number)
        client.expect_close(320)
        out, err = broker.process.communicate(timeout=END_SECONDS_MAX)
        assert (broker.process.returncode, out) == (0, "")
        assert "Traceback" not in err


def test_signal_ends_a_broker_that_nobody_uses(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as broker:
        assert broker.end(signal.SIGTERM)[0] == 0


def test_signal_ends_connections_that_are_still_shaking_hands(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as broker:
        client = AmqpClient(broker.address)
        client.start()
        broker.process.send_signal(signal.SIGTERM)
        client.expect_close(320)
        assert broker.process.wait(END_SECONDS_MAX) == 0


def test_no_new_connection_is_taken_while_ending(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as broker:
        mute = AmqpClient.connect(broker.address)
        broker.process.send_signal(signal.SIGTERM)
        mute.expect(0, m.ConnectionClose)
        with pytest.raises((ConnectionRefusedError, EndedError)):
            AmqpClient.connect(broker.address)
        mute.send_method(0, m.ConnectionCloseOk())
        mute.expect_end()
        assert broker.process.wait(END_SECONDS_MAX) == 0


def test_second_signal_does_no_harm(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as broker:
        client = AmqpClient.connect(broker.address)
        broker.process.send_signal(signal.SIGTERM)
        client.expect(0, m.ConnectionClose)
        broker.process.send_signal(signal.SIGTERM)
        broker.process.send_signal(signal.SIGINT)
        client.send_method(0, m.ConnectionCloseOk())
        client.expect_end()
        assert broker.process.wait(END_SECONDS_MAX) == 0


def test_http_port_minus_one_is_no_http_api(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", "--http-port", "-1") as broker:
        assert broker.ready == f"ready amqp=127.0.0.1:{broker.address.port}\n"
        assert broker.end(signal.SIGTERM)[0] == 0


def test_stdout_has_only_the_ready_line(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", "--log-level", "debug") as broker:
        with AmqpClient.connect(broker.address) as client:
            client.channel().declare()
        code, out, err = broker.end(signal.SIGINT)
        ready = rf"ready amqp=127\.0\.0\.1:{broker.address.port} http=127\.0\.0\.1:\d+\n"
        assert re.fullmatch(ready, broker.ready)
        assert (code, out) == (0, "")
        assert "queue created" in err


def test_second_broker_on_the_usual_ports_runs_without_an_http_api(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # another process has the port already, which serves as well
            holder.bind(("127.0.0.1", 15672))
            holder.listen()
        command = [
            sys.executable,
            "-m",
            "warren",
            "serve",
            "--port",
            "0",
            "--data-dir",
            str(tmp_path / "data"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
        finally:
            process.terminate()
            process.communicate()
    assert ready.startswith("ready amqp=127.0.0.1:")
    assert "http=" not in ready
