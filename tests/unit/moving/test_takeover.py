"""What `warren import rabbitmq` asks of the two HTTP APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded_api import RecordedApi
from warren.broker.passwords import RABBIT_SHA256, rabbit_hash
from warren.cli.main import main
from warren.client.http_url import parse_http_url
from warren.moving.users import without_lockout

DEFINITIONS: dict[str, Any] = {
    "users": [{"name": "u"}],
    "permissions": [],
    "topic_permissions": [],
    "vhosts": [{"name": "/"}],
    "queues": [{"vhost": "/", "name": "q", "durable": True, "auto_delete": False, "arguments": {}}],
}
LISTENERS = (200, {"listeners": [{"protocol": "amqp", "port": 1}]})
VHOSTS = (200, [{"name": "/"}])
QUEUES = (200, {"items": DEFINITIONS["queues"], "page_count": 1})


@pytest.fixture
def source() -> Iterator[RecordedApi]:
    with RecordedApi() as running:
        yield running


@pytest.fixture
def to() -> Iterator[RecordedApi]:
    with RecordedApi() as running:
        yield running


def targets(api: RecordedApi) -> list[str]:
    return [f"{sent.method} {sent.target.partition('?')[0]}" for sent in api.requests]


def test_definitions_go_from_one_api_to_the_other(
    source: RecordedApi, to: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    source.answers = [LISTENERS, (200, DEFINITIONS), QUEUES]
    to.answers = [LISTENERS, VHOSTS, (204, None), QUEUES]
    assert main(["import", "rabbitmq", "--url", source.url, "--to", to.url, "--no-messages"]) == 0
    assert targets(source) == ["GET /api/overview", "GET /api/definitions", "GET /api/queues"]
    assert targets(to) == [
        "GET /api/overview",
        "GET /api/vhosts",
        "POST /api/definitions",
        "GET /api/queues",
    ]
    assert to.requests[2].content == DEFINITIONS
    assert capsys.readouterr().out == "vhost\tqueue\tmoved\tleft\tdifferences\n/\tq\t0\t0\t\n"


def test_users_can_be_left_out(source: RecordedApi, to: RecordedApi) -> None:
    source.answers = [LISTENERS, (200, DEFINITIONS), (200, [])]
    to.answers = [LISTENERS, VHOSTS, (204, None), (200, [])]
    words = ["--url", source.url, "--to", to.url, "--no-messages", "--no-users", "-p", "/"]
    assert main(["import", "rabbitmq", *words]) == 0
    assert targets(source)[1:] == ["GET /api/definitions/%2F", "GET /api/queues/%2F"]
    assert set(to.requests[2].content) == {"vhosts", "queues"}


def test_definitions_of_a_file_need_no_management_api(tmp_path: Path, to: RecordedApi) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    to.answers = [LISTENERS, VHOSTS, (204, None), QUEUES]
    words = ["--definitions", str(file), "--amqp", "amqp://127.0.0.1:1", "--to", to.url, "--no-messages"]
    assert main(["import", "rabbitmq", *words]) == 0
    assert to.requests[2].content == DEFINITIONS


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "has no definitions"),
        ("nonsense", "is not JSON"),
        ('{"queues": [{"vhost": "/"}]}', "queues: expected a list of objects with names"),
        ('{"queues": {"name": "q"}}', "queues: expected a list of objects with names"),
        ('{"users": ["u"]}', "users: expected a list of objects with names"),
        ('{"bindings": [1]}', "bindings: expected a list of objects"),
    ],
)
def test_file_without_definitions_is_exit_2(
    tmp_path: Path, content: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(content)
    words = ["--definitions", str(file), "--amqp", "amqp://127.0.0.1:1", "-p", "/", "--no-definitions"]
    assert main(["import", "rabbitmq", *words]) == 2
    assert reason in capsys.readouterr().err


def test_refused_definitions_are_exit_1(
    source: RecordedApi, to: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    source.answers = [LISTENERS, (200, DEFINITIONS)]
    to.answers = [LISTENERS, VHOSTS, (400, {"error": "bad_request", "reason": "unknown exchange type"})]
    assert main(["import", "rabbitmq", "--url", source.url, "--to", to.url, "--no-messages"]) == 1
    address = to.url.replace("guest:guest@", "")
    expected = f"warren import rabbitmq: {address} refused: unknown exchange type\n"
    assert capsys.readouterr().err == expected


def test_broker_that_speaks_no_amqp_is_exit_3_before_anything_is_changed(
    source: RecordedApi, to: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    source.answers, to.answers = [LISTENERS, (200, DEFINITIONS)], [LISTENERS]
    assert main(["import", "rabbitmq", "--url", source.url, "--to", to.url]) == 3
    assert capsys.readouterr().err == (
        "warren import rabbitmq: cannot connect to 127.0.0.1:1: Connection refused; "
        "if AMQP is spoken elsewhere, say so with --amqp\n"
    )
    assert targets(to) == ["GET /api/overview"]


def test_password_of_the_source_has_a_variable_of_its_own(
    source: RecordedApi, to: RecordedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_SOURCE_PASSWORD", "theirs")
    monkeypatch.setenv("WARREN_PASSWORD", "ours")
    source.answers = [LISTENERS, (200, DEFINITIONS), (200, [])]
    to.answers = [LISTENERS, VHOSTS, (204, None), (200, [])]
    urls = [api.url.replace("guest:guest", "ops") for api in (source, to)]
    assert main(["import", "rabbitmq", "--url", urls[0], "--to", urls[1], "--no-messages"]) == 0
    logins = [api.requests[0].headers["Authorization"] for api in (source, to)]
    assert logins == ["Basic b3BzOnRoZWlycw==", "Basic b3BzOm91cnM="]


def test_vhosts_that_are_missing_are_made_so_that_we_may_use_them(
    source: RecordedApi, to: RecordedApi
) -> None:
    definitions = {"vhosts": [{"name": "/"}, {"name": "shop"}]}
    source.answers = [LISTENERS, (200, definitions), (200, [])]
    to.answers = [LISTENERS, VHOSTS, (201, None), (204, None), (200, [])]
    assert main(["import", "rabbitmq", "--url", source.url, "--to", to.url, "--no-messages"]) == 0
    assert targets(to)[1:4] == ["GET /api/vhosts", "PUT /api/vhosts/shop", "POST /api/definitions"]


def test_user_that_we_log_in_with_is_not_locked_out(
    source: RecordedApi, to: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    users = [
        {"name": name, "password_hash": hashed.value, "hashing_algorithm": hashed.algorithm, "tags": tags}
        for name, hashed, tags in (
            ("guest", rabbit_hash(RABBIT_SHA256, "another", b"salt"), "administrator"),
            ("other", rabbit_hash(RABBIT_SHA256, "another", b"salt"), ""),
        )
    ]
    source.answers = [LISTENERS, (200, {"users": users}), (200, [])]
    to.answers = [LISTENERS, VHOSTS, (204, None), (200, [])]
    assert main(["import", "rabbitmq", "--url", source.url, "--to", to.url, "--no-messages"]) == 0
    assert to.requests[2].content == {"users": users[1:]}
    expected = "user 'guest' stays as it is here, since this command logs in with it\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("password", "tags", "is_kept"),
    [("guest", "administrator", True), ("guest", ["administrator", "x"], True), ("guest", "", False)],
    ids=["the same", "tags as a list", "no administrator"],
)
def test_user_that_we_log_in_with_is_taken_over_if_nothing_changes_for_us(
    password: str, tags: object, is_kept: bool
) -> None:
    hashed = rabbit_hash(RABBIT_SHA256, password, b"salt")
    user = {"name": "guest", "password_hash": hashed.value, "tags": tags}
    remarks: list[str] = []
    url = parse_http_url("http://guest:guest@127.0.0.1:1")
    found = without_lockout({"users": [user]}, url, remarks.append)
    assert found == {"users": [user] if is_kept else []}
    assert len(remarks) == (0 if is_kept else 1)


def test_of_a_file_only_the_vhost_that_is_asked_for_is_taken(tmp_path: Path, to: RecordedApi) -> None:
    """Posted to one vhost, the rows of all others would be made there as well."""
    file = tmp_path / "definitions.json"
    there = [{"vhost": vhost, "name": "q", "durable": True} for vhost in ("/", "shop")]
    file.write_text(json.dumps({"rabbit_version": "3.10.8", "queues": there}))
    to.answers = [LISTENERS, VHOSTS, (201, None), (204, None), (200, [])]
    words = ["--definitions", str(file), "--amqp", "amqp://127.0.0.1:1", "--to", to.url, "-p", "shop"]
    assert main(["import", "rabbitmq", *words, "--no-messages"]) == 0
    assert targets(to)[2:4] == ["PUT /api/vhosts/shop", "POST /api/definitions/shop"]
    assert to.requests[3].content == {"rabbit_version": "3.10.8", "queues": there[1:]}
