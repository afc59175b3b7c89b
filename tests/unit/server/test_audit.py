from __future__ import annotations

import json
import logging
import queue
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import FakeWorld
from warren.broker.events import AdministrativeAction, AuthenticationFailed, ConnectionClosed, Events
from warren.server import audit as module
from warren.server.audit import AuditLog
from warren.server.config_error import ConfigError


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = FakeWorld()
        self.events = Events(self.world.report)
        self.audit = AuditLog(self.world)
        self.audit.start(str(path), self.events)

    def lines(self) -> list[dict[str, Any]]:
        """What is in the file, when all is written."""
        self.audit.stop()
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "audit.log")


def test_actions_failed_logins_and_forced_ends_are_lines_of_json(scene: Scene) -> None:
    scene.events.emit(AdministrativeAction("admin", "192.0.2.1", "PUT /api/users/é\n", 201))
    scene.events.emit(AuthenticationFailed("client", "me", "wrong password"))
    scene.events.emit(ConnectionClosed("client", "CONNECTION_FORCED - maintenance"))
    scene.events.emit(ConnectionClosed("client", "client closed: 200 bye"))
    assert scene.lines() == [
        {
            "time": "1970-01-01T00:16:40.000+00:00",
            "event": "administrative action",
            "user": "admin",
            "address": "192.0.2.1",
            "action": "PUT /api/users/é\n",
            "status": 201,
        },
        {
            "time": "1970-01-01T00:16:40.000+00:00",
            "event": "authentication failed",
            "connection": "client",
            "user": "me",
            "reason": "wrong password",
        },
        {
            "time": "1970-01-01T00:16:40.000+00:00",
            "event": "connection closed by force",
            "connection": "client",
            "reason": "CONNECTION_FORCED - maintenance",
        },
    ]
    assert scene.world.errors == []


def test_only_the_owner_can_read_it(scene: Scene) -> None:
    scene.audit.stop()
    assert stat.S_IMODE(scene.path.stat().st_mode) == 0o600


def test_file_is_appended_to(scene: Scene) -> None:
    scene.events.emit(AuthenticationFailed("client", "first", ""))
    assert [line["user"] for line in scene.lines()] == ["first"]
    again = Scene(scene.path)
    again.events.emit(AuthenticationFailed("client", "second", ""))
    assert [line["user"] for line in again.lines()] == ["first", "second"]


def test_renamed_file_is_made_anew(scene: Scene, tmp_path: Path) -> None:
    scene.events.emit(AuthenticationFailed("client", "first", ""))
    while not scene.path.read_text():
        scene.audit.waiting.join()
    rotated = scene.path.rename(tmp_path / "audit.log.1")
    scene.events.emit(AuthenticationFailed("client", "second", ""))
    assert [line["user"] for line in scene.lines()] == ["second"]
    assert "first" in rotated.read_text()
    assert stat.S_IMODE(scene.path.stat().st_mode) == 0o600


def test_lines_beyond_what_the_disk_takes_are_counted(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "audit.log")
    kept = scene.audit.waiting
    scene.audit.waiting = queue.Queue(1)
    for _ in range(3):
        scene.events.emit(AuthenticationFailed("client", "lost", ""))
    scene.audit.waiting = kept
    scene.events.emit(AuthenticationFailed("client", "kept", ""))
    lines = scene.lines()
    assert [line["event"] for line in lines] == ["lines lost", "authentication failed"]
    assert lines[0]["count"] > 0


def test_file_that_cannot_be_written_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: module.AuditFile, _record: object) -> str:
        raise OSError("no space")

    monkeypatch.setattr(module.AuditFile, "format", fail)
    scene.events.emit(AuthenticationFailed("client", "me", ""))
    scene.audit.stop()
    assert ["audit log" in str(error) for error in scene.world.errors] == [True]


def test_path_that_cannot_be_opened_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="audit_log"):
        Scene(tmp_path / "no such directory" / "audit.log")


def test_without_a_path_there_is_no_audit_log() -> None:
    audit = AuditLog(FakeWorld())
    audit.start("", Events(FakeWorld().report))
    assert audit.listener is None
    audit.stop()


def test_file_that_cannot_be_made_anew_loses_lines_and_is_tried_again(scene: Scene, tmp_path: Path) -> None:
    """As when somebody removes the directory of logs, and makes it again."""
    scene.audit.stop()
    folder = tmp_path / "logs"
    folder.mkdir()
    scene = Scene(folder / "audit.log")
    folder.rename(tmp_path / "elsewhere")
    scene.events.emit(AuthenticationFailed("client", "lost", ""))
    scene.audit.waiting.join()
    reason = f"[Errno 2] No such file or directory: '{folder}/audit.log'"
    assert [str(error) for error in scene.world.errors] == [
        f"cannot write to the audit log {folder}/audit.log: {reason}"
    ]
    folder.mkdir()
    scene.events.emit(AuthenticationFailed("client", "kept", ""))
    assert [line["user"] for line in scene.lines()] == ["kept"]


class Brimful(queue.Queue[logging.LogRecord]):
    """Has room for one line. The disk goes on once somebody waits for room."""

    def __init__(self, _size: int) -> None:
        super().__init__(1)
        self.disk_goes_on = threading.Event()

    def put(self, item: logging.LogRecord, block: bool = True, timeout: float | None = None) -> None:
        if block:
            self.disk_goes_on.set()
        super().put(item, block, timeout)


def test_log_that_is_behind_when_the_broker_stops_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Queue", Brimful)
    scene = Scene(tmp_path / "audit.log")
    waiting = scene.audit.waiting
    assert isinstance(waiting, Brimful)
    disk_goes_on, begun = waiting.disk_goes_on, threading.Event()
    plain = module.AuditFile.format

    def format_slowly(file: module.AuditFile, record: logging.LogRecord) -> str:
        begun.set()
        disk_goes_on.wait()
        return plain(file, record)

    monkeypatch.setattr(module.AuditFile, "format", format_slowly)
    scene.events.emit(AuthenticationFailed("client", "first", ""))
    begun.wait()
    scene.events.emit(AuthenticationFailed("client", "second", ""))
    assert [line["user"] for line in scene.lines()] == ["first", "second"]
