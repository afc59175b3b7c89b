"""What each command asks of the HTTP API: RabbitMQ's paths and bodies."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from tests.support.recorded_api import Raw, RecordedApi
from warren.cli.main import main, warren

pytestmark = pytest.mark.slow

MISSING = (404, {"error": "Object Not Found", "reason": "Not Found"})


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("WARREN_URL", "WARREN_PROFILE", "WARREN_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def api() -> Iterator[RecordedApi]:
    with RecordedApi() as running:
        yield running


CHANGES: list[tuple[str, str, str, Any]] = [
    (
        "queues declare q --type quorum --argument x-max-length=10 --argument x-overflow=reject-publish",
        "PUT",
        "/api/queues/%2F/q",
        {
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum", "x-max-length": 10, "x-overflow": "reject-publish"},
        },
    ),
    (
        "queues declare a/b -p v --transient --auto-delete",
        "PUT",
        "/api/queues/v/a%2Fb",
        {"durable": False, "auto_delete": True, "arguments": {}},
    ),
    ("queues delete q", "DELETE", "/api/queues/%2F/q", None),
    ("queues rm q --if-empty --if-unused", "DELETE", "/api/queues/%2F/q?if-empty=true&if-unused=true", None),
    ("queues purge q", "DELETE", "/api/queues/%2F/q/contents", None),
    ("purge q", "DELETE", "/api/queues/%2F/q/contents", None),
    (
        "exchanges declare e --type topic --internal",
        "PUT",
        "/api/exchanges/%2F/e",
        {"type": "topic", "durable": True, "auto_delete": False, "internal": True, "arguments": {}},
    ),
    ("exchanges delete e --if-unused", "DELETE", "/api/exchanges/%2F/e?if-unused=true", None),
    (
        "bindings add e q --key k --argument x=1",
        "POST",
        "/api/bindings/%2F/e/e/q/q",
        {"routing_key": "k", "arguments": {"x": 1}},
    ),
    (
        "bindings add e f --to-exchange",
        "POST",
        "/api/bindings/%2F/e/e/e/f",
        {"routing_key": "", "arguments": {}},
    ),
    ("users delete u", "DELETE", "/api/users/u", None),
    (
        "vhosts add v --description d --tags a,b",
        "PUT",
        "/api/vhosts/v",
        {"description": "d", "tags": "a,b"},
    ),
    ("vhosts delete v", "DELETE", "/api/vhosts/v", None),
    (
        "permissions set u .* ^w ^r -p v",
        "PUT",
        "/api/permissions/v/u",
        {"configure": ".*", "write": "^w", "read": "^r"},
    ),
    ("permissions clear u", "DELETE", "/api/permissions/%2F/u", None),
    (
        "topic-permissions set u amq.topic ^w ^r",
        "PUT",
        "/api/topic-permissions/%2F/u",
        {"exchange": "amq.topic", "write": "^w", "read": "^r"},
    ),
    ("topic-permissions clear u", "DELETE", "/api/topic-permissions/%2F/u", None),
    ("topic-permissions clear u amq.topic", "DELETE", "/api/topic-permissions/%2F/u/amq.topic", None),
    (
        'policies set p ^q {"max-length":1} --priority 2 --apply-to queues',
        "PUT",
        "/api/policies/%2F/p",
        {"pattern": "^q", "definition": {"max-length": 1}, "priority": 2, "apply-to": "queues"},
    ),
    (
        'policies set p ^q {"max-length":1} --operator',
        "PUT",
        "/api/operator-policies/%2F/p",
        {"pattern": "^q", "definition": {"max-length": 1}, "priority": 0, "apply-to": "queues"},
    ),
    ("policies delete p", "DELETE", "/api/policies/%2F/p", None),
    ("limits set max-queues 10 -p v", "PUT", "/api/vhost-limits/v/max-queues", {"value": 10}),
    ("limits set max-queues -1", "PUT", "/api/vhost-limits/%2F/max-queues", {"value": -1}),
    ("limits set max-channels 5 --user u", "PUT", "/api/user-limits/u/max-channels", {"value": 5}),
    ("limits clear max-queues", "DELETE", "/api/vhost-limits/%2F/max-queues", None),
    ("limits clear max-channels --user u", "DELETE", "/api/user-limits/u/max-channels", None),
    (
        'parameters set c n {"a":1}',
        "PUT",
        "/api/parameters/c/%2F/n",
        {"component": "c", "vhost": "/", "name": "n", "value": {"a": 1}},
    ),
    ("parameters delete c n", "DELETE", "/api/parameters/c/%2F/n", None),
    ("global-parameters set n text", "PUT", "/api/global-parameters/n", {"name": "n", "value": "text"}),
    ("global-parameters set n 5", "PUT", "/api/global-parameters/n", {"name": "n", "value": 5}),
    ("global-parameters delete n", "DELETE", "/api/global-parameters/n", None),
    ("trace on -p v", "PUT", "/api/vhosts/v", {"tracing": True}),
    ("trace off", "PUT", "/api/vhosts/%2F", {"tracing": False}),
    (
        'federation upstreams set up amqp://there {"max-hops":2}',
        "PUT",
        "/api/parameters/federation-upstream/%2F/up",
        {
            "component": "federation-upstream",
            "vhost": "/",
            "name": "up",
            "value": {"uri": "amqp://there", "max-hops": 2},
        },
    ),
    (
        'federation upstream-sets set s [{"upstream":"up"}]',
        "PUT",
        "/api/parameters/federation-upstream-set/%2F/s",
        {"component": "federation-upstream-set", "vhost": "/", "name": "s", "value": [{"upstream": "up"}]},
    ),
    (
        "federation upstreams delete up -p v",
        "DELETE",
        "/api/parameters/federation-upstream/v/up",
        None,
    ),
    ("federation upstream-sets delete s", "DELETE", "/api/parameters/federation-upstream-set/%2F/s", None),
    (
        "shovels declare s --src-queue a --dest-queue b",
        "PUT",
        "/api/parameters/shovel/%2F/s",
        {
            "component": "shovel",
            "vhost": "/",
            "name": "s",
            "value": {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"},
        },
    ),
    (
        (
            "shovels add s -p v --src-uri amqp://a --src-uri amqp://b --src-exchange e --src-exchange-key k"
            ' --src-consumer-args {"x-priority":1} --src-queue-args {"x-expires":5} --src-prefetch-count 10'
            " --src-delete-after 5 --dest-uri amqp://c --dest-exchange f --dest-exchange-key l"
            ' --dest-queue-args {} --dest-publish-properties {"delivery_mode":2} --dest-add-forward-headers'
            " --dest-add-timestamp-header --ack-mode on-publish --reconnect-delay 1.5"
            " --src-predeclared --dest-predeclared"
        ),
        "PUT",
        "/api/parameters/shovel/v/s",
        {
            "component": "shovel",
            "vhost": "v",
            "name": "s",
            "value": {
                "src-uri": ["amqp://a", "amqp://b"],
                "src-exchange": "e",
                "src-exchange-key": "k",
                "src-consumer-args": {"x-priority": 1},
                "src-queue-args": {"x-expires": 5},
                "src-prefetch-count": 10,
                "src-delete-after": 5,
                "dest-uri": "amqp://c",
                "dest-exchange": "f",
                "dest-exchange-key": "l",
                "dest-queue-args": {},
                "dest-publish-properties": {"delivery_mode": 2},
                "dest-add-forward-headers": True,
                "dest-add-timestamp-header": True,
                "ack-mode": "on-publish",
                "reconnect-delay": 1.5,
                "src-predeclared": True,
                "dest-predeclared": True,
            },
        },
    ),
    ("shovels delete s", "DELETE", "/api/shovels/vhost/%2F/s", None),
    ("shovels restart s -p v", "DELETE", "/api/shovels/vhost/v/s/restart", None),
    ("pause q", "PUT", "/api/queues/%2F/q/pause", {}),
    ("resume q", "PUT", "/api/queues/%2F/q/resume", {}),
    ("cluster undrain", "DELETE", "/api/cluster/drain", None),
    ("cluster remove a", "DELETE", "/api/cluster/nodes/a", None),
]


@pytest.mark.parametrize(("words", "method", "target", "content"), CHANGES)
def test_command_that_changes_something(
    api: RecordedApi, words: str, method: str, target: str, content: Any
) -> None:
    assert main([*words.split(), "--url", api.url]) == 0
    sent = api.requests[-1]
    assert (sent.method, sent.target, sent.content) == (method, target, content)


LISTS = [
    ("queues ls", "/api/queues"),
    ("queues list -p v", "/api/queues/v"),
    ("exchanges ls", "/api/exchanges"),
    ("bindings ls -p /", "/api/bindings/%2F"),
    ("connections ls", "/api/connections"),
    ("connections ls -p v", "/api/vhosts/v/connections"),
    ("connections ls --user u", "/api/connections/username/u"),
    ("channels ls", "/api/channels"),
    ("channels ls --connection c", "/api/connections/c/channels"),
    ("consumers ls -p v", "/api/consumers/v"),
    ("users ls", "/api/users"),
    ("vhosts ls", "/api/vhosts"),
    ("permissions ls", "/api/permissions"),
    ("permissions ls --user u", "/api/users/u/permissions"),
    ("topic-permissions ls -p v", "/api/vhosts/v/topic-permissions"),
    ("policies ls", "/api/policies"),
    ("policies ls --operator -p v", "/api/operator-policies/v"),
    ("parameters ls --component c -p v", "/api/parameters/c/v"),
    ("global-parameters ls", "/api/global-parameters"),
    ("federation links ls", "/api/federation-links"),
    ("federation links ls --down -p v", "/api/federation-links/v/state/down"),
    ("federation upstreams ls", "/api/parameters/federation-upstream"),
    ("federation upstream-sets ls -p v", "/api/parameters/federation-upstream-set/v"),
    ("shovels ls", "/api/shovels"),
    ("shovels ls -p v", "/api/shovels/v"),
    ("limits ls -p v", "/api/vhost-limits/v"),
    ("limits ls --user u", "/api/user-limits/u"),
    ("limits ls --users", "/api/user-limits"),
    ("cluster shards", "/api/cluster/shards"),
]


@pytest.mark.parametrize(("words", "path"), LISTS)
def test_command_that_lists(
    api: RecordedApi, words: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, [])]
    assert main([*words.split(), "--json", "--url", api.url]) == 0
    assert api.requests[0].target.partition("?")[0] == path
    assert json.loads(capsys.readouterr().out) == []


def test_federation_link_is_started_again_on_its_node(api: RecordedApi) -> None:
    api.answers = [(200, [{"id": "abc", "node": "n"}]), (204, None)]
    assert main(["federation", "links", "restart", "abc", "--url", api.url]) == 0
    assert [sent.target for sent in api.requests] == [
        "/api/federation-links/%2F",
        "/api/federation-links/vhost/%2F/abc/n/restart",
    ]


def test_federation_link_that_is_not_there_is_told(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, [])]
    assert main(["federation", "links", "restart", "abc", "--url", api.url]) == 1
    assert "no federation link 'abc' in vhost '/'" in capsys.readouterr().err


def shard(number: int, leader: str, role: str) -> dict[str, Any]:
    follower = {"node": "b", "is_in_step": True, "bytes_in_flight": 7}
    return {
        "number": number,
        "epoch": 1,
        "leader": leader,
        "replicas": ["a", "b"],
        "in_sync": ["a", "b"],
        "joining": [],
        "leaving": [],
        "role": role,
        "followers": [follower, follower | {"bytes_in_flight": 0}, follower | {"is_in_step": False}],
        "is_older_in_etcd": False,
    }


def test_drain_returns_when_the_broker_leads_nothing(api: RecordedApi) -> None:
    api.answers = [(204, None), (200, [shard(0, "a", "open")]), (200, [shard(0, "b", "follower")])]
    assert main(["cluster", "drain", "--url", api.url]) == 0
    assert [(sent.method, sent.target) for sent in api.requests] == [
        ("PUT", "/api/cluster/drain"),
        ("GET", "/api/cluster/shards"),
        ("GET", "/api/cluster/shards"),
    ]


def test_drain_fails_if_nobody_takes_the_shards(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(204, None), (200, [shard(0, "a", "open")])]
    assert main(["cluster", "drain", "--wait", "0", "--url", api.url]) == 1
    assert "it leads shards still" in capsys.readouterr().err


def test_move_returns_when_the_node_leads(api: RecordedApi) -> None:
    api.answers = [(204, None), (200, [shard(3, "a", "open")]), (200, [shard(3, "b", "follower")])]
    assert main(["cluster", "move", "3", "b", "--url", api.url]) == 0
    assert (api.requests[0].target, api.requests[0].content) == (
        "/api/cluster/shards/3/leader",
        {"node": "b"},
    )
    assert len(api.requests) == 3


def test_force_leader_returns_when_the_shard_is_open(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    forced = {"node": "a", "epoch": 8, "were_in_sync": ["b", "c"], "queues": 2}
    api.answers = [(200, forced), (200, [shard(3, "a", "opening")]), (200, [shard(3, "a", "open")])]
    assert main(["cluster", "force-leader", "3", "a", "--accept-data-loss", "--url", api.url]) == 0
    assert (api.requests[0].target, api.requests[0].content) == (
        "/api/cluster/shards/3/forced-leader",
        {"node": "a", "accept_data_loss": True},
    )
    assert len(api.requests) == 3
    assert capsys.readouterr().out.splitlines()[-1].split("\t") == ["a", "8", "b c", "2"]


def test_force_leader_wants_to_hear_that_loss_is_accepted(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "force-leader", "3", "a", "--url", api.url]) == 1
    assert "say --accept-data-loss" in capsys.readouterr().err
    assert api.requests == []


def test_move_that_the_broker_refuses_is_told(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [
        (400, {"error": "bad_request", "reason": "shard 3 is led by node 'b'"}),
        (200, {"product_name": "WarrenMQ"}),
    ]
    assert main(["cluster", "move", "3", "a", "--url", api.url]) == 1
    assert capsys.readouterr().err == "warren cluster move: shard 3 is led by node 'b'\n"


def test_shards_are_shown_with_what_followers_lack(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, [shard(3, "a", "open")])]
    assert main(["cluster", "shards", "--no-header", "--url", api.url]) == 0
    told = "b lacks 7 bytes, b in step, b is not in step"
    assert capsys.readouterr().out == f"3\ta\t1\ta b\ta b\t\t\topen\t{told}\tfalse\n"


def test_status_of_a_cluster_is_that_of_its_nodes(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, [{"name": "a", "running": True, "leads": 4}])]
    assert main(["cluster", "status", "--no-header", "--url", api.url]) == 0
    assert capsys.readouterr().out.split() == ["a", "true", "4"]
    api.answers = [(200, [{"name": "a", "running": True}])]
    assert main(["cluster", "status", "--url", api.url]) == 1
    assert "not in a cluster" in capsys.readouterr().err


def test_status_tells_of_the_node_that_was_asked(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [{"name": "a"}, {"name": "b", "uptime": 5000}, {"name": "c"}]
    api.answers = [(200, {"node": "b"}), (200, nodes)]
    assert main(["status", "--url", api.url]) == 0
    assert "node\tb\nuptime_seconds\t5\n" in capsys.readouterr().out


def test_filters_and_sorting_are_left_to_the_broker(api: RecordedApi) -> None:
    api.answers = [(200, [])]
    words = "queues ls name messages --name ^a --regex --sort messages --reverse"
    assert main([*words.split(), "--url", api.url]) == 0
    assert api.requests[0].target == (
        "/api/queues?name=%5Ea&use_regex=true&sort=messages&sort_reverse=true"
        "&columns=name%2Cmessages&page=1&page_size=500"
    )


@pytest.mark.parametrize(
    ("words", "unknown"),
    [("name nofield", "nofield"), ("name --sort stats.nofield", "stats.nofield"), ("name.x", "name.x")],
)
def test_field_that_no_row_has_is_told(
    api: RecordedApi, words: str, unknown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, [{"name": "a", "stats": {"n": 1}}, {"name": "b"}])]
    assert main(["queues", "ls", *words.split(), "--url", api.url]) == 0
    assert capsys.readouterr().err == f"warren queues ls: nothing in this list has a field '{unknown}'\n"


@pytest.mark.parametrize("rows", [[], [{"name": "a"}, {"name": None, "stats": {"n": None}}]])
def test_field_that_a_row_has_or_an_empty_list_is_no_reason_to_tell(
    api: RecordedApi, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, rows)]
    assert main(["queues", "ls", "name", "stats.n", "--sort", "stats.n", "--url", api.url]) == 0
    assert capsys.readouterr().err == ""


def test_connections_are_listed_with_the_names_that_clients_gave(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, [{"vhost": "/", "name": "1 -> 2", "user_provided_name": "Shovel orders"}])]
    assert main(["connections", "ls", "--url", api.url]) == 0
    assert capsys.readouterr().out.endswith("\tShovel orders\n")


def test_long_list_is_read_page_by_page(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [
        (200, {"page": 1, "page_count": 2, "items": [{"name": "a", "messages": 1}]}),
        (200, {"page": 2, "page_count": 2, "items": [{"name": "b", "messages": 2}]}),
    ]
    assert main(["queues", "ls", "name", "messages", "--url", api.url]) == 0
    assert capsys.readouterr().out == "name\tmessages\na\t1\nb\t2\n"
    assert [f"page={number}&" in sent.target for number, sent in enumerate(api.requests, 1)] == [True, True]


def test_list_that_becomes_shorter_meanwhile_ends(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [
        (200, {"page": 1, "page_count": 2, "items": [{"name": "a"}]}),
        (400, {"error": "page_out_of_range", "reason": "page out of range"}),
    ]
    assert main(["queues", "ls", "name", "--no-header", "--url", api.url]) == 0
    assert capsys.readouterr().out == "a\n"


def test_bindings_rm_finds_the_key_of_the_binding(api: RecordedApi) -> None:
    api.answers = [
        (
            200,
            [
                {"routing_key": "k", "arguments": {"x": 1}, "properties_key": "k~hash"},
                {"routing_key": "k", "arguments": {}, "properties_key": "k"},
            ],
        )
    ]
    assert main(["bindings", "rm", "e", "q", "--key", "k", "--url", api.url]) == 0
    assert (api.requests[1].method, api.requests[1].target) == ("DELETE", "/api/bindings/%2F/e/e/q/q/k")


def test_bindings_rm_of_a_binding_that_is_not_there_fails(api: RecordedApi) -> None:
    api.answers = [(200, [])]
    assert main(["bindings", "rm", "e", "q", "--key", "k", "--url", api.url]) == 1
    assert len(api.requests) == 1


def test_connections_close_tells_the_client_why(api: RecordedApi) -> None:
    assert main(["connections", "close", "1 -> 2", "--reason", "maintenance", "--url", api.url]) == 0
    sent = api.requests[0]
    assert (sent.method, sent.target) == ("DELETE", "/api/connections/1%20-%3E%202")
    assert sent.headers["X-Reason"] == "maintenance"


def test_new_password_is_read_from_the_standard_input(
    api: RecordedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    api.answers = [MISSING]
    assert main(["users", "add", "u", "administrator", "--url", api.url]) == 0
    assert api.requests[1].content == {"password": "secret", "tags": "administrator"}


def test_user_without_a_password_has_an_empty_hash(api: RecordedApi) -> None:
    api.answers = [MISSING]
    words = "users add u --no-password monitoring policymaker"
    assert main([*words.split(), "--url", api.url]) == 0
    sent = api.requests[1]
    assert (sent.method, sent.target) == ("PUT", "/api/users/u")
    assert sent.content == {"password_hash": "", "tags": "monitoring,policymaker"}


def test_user_who_is_there_is_not_added_again(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    """That would take the user's tags away."""
    api.answers = [(200, {"name": "u", "tags": ["administrator"]})]
    assert main(["users", "add", "u", "--no-password", "--url", api.url]) == 1
    assert [sent.method for sent in api.requests] == ["GET"]
    assert "user 'u' is there already" in capsys.readouterr().err


def test_changed_password_leaves_the_tags(api: RecordedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.answers = [(200, {"name": "u", "tags": ["monitoring", "management"]})]
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["users", "passwd", "u", "--url", api.url]) == 0
    assert api.requests[1].content == {"password": "secret", "tags": "monitoring,management"}


def test_changed_tags_leave_the_password(api: RecordedApi) -> None:
    known = {
        "name": "u",
        "tags": [],
        "password_hash": "abc",
        "hashing_algorithm": "rabbit_password_hashing_sha256",
    }
    api.answers = [(200, known)]
    assert main(["users", "tags", "u", "management", "--url", api.url]) == 0
    assert api.requests[1].content == {
        "password_hash": "abc",
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "management",
    }


def test_publish_sends_properties_and_headers(api: RecordedApi) -> None:
    api.answers = [(200, {"routed": True})]
    words = "publish key body --exchange e --property delivery_mode=2 --header n=1"
    assert main([*words.split(), "--url", api.url]) == 0
    assert (api.requests[0].method, api.requests[0].target) == ("POST", "/api/exchanges/%2F/e/publish")
    assert api.requests[0].content == {
        "properties": {"delivery_mode": 2, "headers": {"n": 1}},
        "routing_key": "key",
        "payload": "body",
        "payload_encoding": "string",
    }


def test_payload_that_is_not_text_is_sent_as_base64(
    api: RecordedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers = [(200, {"routed": True})]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\x00")))
    assert main(["exchanges", "publish", "e", "key", "--url", api.url]) == 0
    sent = api.requests[0].content
    assert (sent["payload"], sent["payload_encoding"]) == ("/wA=", "base64")


def test_message_that_no_queue_gets_is_a_failure(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, {"routed": False})]
    assert main(["publish", "key", "body", "--url", api.url]) == 1
    assert api.requests[0].target == "/api/exchanges/%2F/amq.default/publish"
    assert "no queue" in capsys.readouterr().err


def test_get_asks_for_messages_that_go_back(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(200, [{"payload": "b\tc", "payload_bytes": 3, "routing_key": "k", "redelivered": False}])]
    assert main(["get", "q", "--count", "2", "--no-header", "--url", api.url]) == 0
    assert api.requests[0].content == {"count": 2, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert capsys.readouterr().out == "k\t\t3\tb\\tc\t\t\tfalse\n"


def test_peek_asks_by_position_and_condition(api: RecordedApi) -> None:
    api.answers = [(200, [])]
    assert main(["peek", "q", "--count", "3", "--offset", "7", "--selector", "x=1", "--url", api.url]) == 0
    assert api.requests[0].target == "/api/queues/%2F/q/messages?count=3&offset=7&selector=x%3D1"


@pytest.mark.parametrize(
    "words",
    ["permissions ls --user u", "topic-permissions ls --user u", "parameters ls", "connections ls --user u"],
)
@pytest.mark.parametrize("more", [[], ["name"]])
def test_vhost_counts_for_lists_that_have_no_path_for_it(
    api: RecordedApi, words: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"vhost": vhost, "name": f"in {vhost}"} for vhost in ("v", "w")]
    api.answers = [(200, rows)]
    assert main([*words.split(), *more, "-p", "v", "--json", "--url", api.url]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown == {"name": "in v"} | ({} if more else {"vhost": "v"})


@pytest.mark.parametrize("words", [["queues", "show"], ["queues", "purge"], ["users", "delete"]])
def test_empty_name_asks_for_nothing(
    api: RecordedApi, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "", "--url", api.url]) == 1
    assert api.requests == []
    assert "a name is empty" in capsys.readouterr().err


def test_name_that_is_not_utf_8_is_sent_as_it_is(api: RecordedApi) -> None:
    assert main(["queues", "purge", os.fsdecode(b"caf\xe9"), "--url", api.url]) == 0
    assert api.requests[0].target == "/api/queues/%2F/caf%E9/contents"


@pytest.mark.parametrize(("reason", "sent"), [("Prüfung ✓", "Prüfung ✓"), ("a\nb", "a\\nb")])
def test_reason_may_have_any_letters(api: RecordedApi, reason: str, sent: str) -> None:
    assert main(["connections", "close", "c", "--reason", reason, "--url", api.url]) == 0
    assert api.requests[0].headers["X-Reason"].encode("latin-1").decode() == sent


def test_unknown_health_check_is_named(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [MISSING]
    assert main(["health", "odd", "--url", api.url]) == 1
    assert capsys.readouterr().err == "warren health: there is no health check 'odd'\n"


@pytest.mark.parametrize(("status", "given"), [(301, None), (200, "<html>")])
def test_what_is_no_api_of_a_broker_is_told(
    api: RecordedApi, status: int, given: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(status, None if given is None else Raw(given.encode()))]
    assert main(["queues", "ls", "--url", api.url]) == 3
    assert f"is no HTTP API of a broker: it answers {status}" in capsys.readouterr().err


JOB = {"id": 7, "kind": "move", "to": None, "reason": "", "done": 3}


@pytest.mark.parametrize(
    ("words", "target", "content"),
    [
        ("move q to --count 5", "/api/queues/%2F/q/move", {"to": "to", "count": 5}),
        ("copy q to --selector x=1", "/api/queues/%2F/q/copy", {"to": "to", "selector": "x=1"}),
        ("delete-messages q --selector x=1", "/api/queues/%2F/q/delete-messages", {"selector": "x=1"}),
    ],
)
def test_job_on_messages_is_waited_for(
    api: RecordedApi, words: str, target: str, content: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(200, JOB | {"state": "running"}), (200, JOB | {"state": "done"})]
    assert main([*words.split(), "--url", api.url]) == 0
    asked, waited = api.requests
    assert (asked.method, asked.target, asked.content) == ("POST", target, content)
    assert (waited.method, waited.target) == ("GET", "/api/message-jobs/7?wait=10")
    assert capsys.readouterr().out == "id\t7\nkind\tmove\ndone\t3\nstate\tdone\n"


def test_job_that_stops_is_a_failure(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(200, JOB | {"state": "stopped", "reason": "the queue is full"})]
    assert main(["move", "q", "to", "--url", api.url]) == 1
    assert "3 messages are done, then it ended: the queue is full" in capsys.readouterr().err


def test_ctrl_c_ends_the_job(api: RecordedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("warren.client.api.Api.get", interrupted)
    api.answers = [(200, JOB | {"state": "running"})]
    assert main(["move", "q", "to", "--url", api.url]) == 130
    assert (api.requests[1].method, api.requests[1].target) == ("DELETE", "/api/message-jobs/7")


def test_definitions_go_out_and_in_again(api: RecordedApi, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("definitions") / "all.json"
    api.answers = [(200, {"queues": [{"name": "q"}]}), (204, None)]
    assert main(["definitions", "export", str(file), "--url", api.url]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert main(["definitions", "import", str(file), "-p", "v", "--url", api.url]) == 0
    assert (api.requests[1].method, api.requests[1].target) == ("POST", "/api/definitions/v")
    assert api.requests[1].content == {"queues": [{"name": "q"}]}


def test_export_that_cannot_be_written_is_told(
    api: RecordedApi, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("definitions") / "absent" / "all.json"
    api.answers = [(200, {})]
    assert main(["definitions", "export", str(file), "--url", api.url]) == 1
    assert capsys.readouterr().err == f"warren definitions export: {file}: No such file or directory\n"


def test_export_goes_to_the_standard_output(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [(200, {"queues": []})]
    assert main(["definitions", "export", "--url", api.url]) == 0
    assert json.loads(capsys.readouterr().out) == {"queues": []}


def test_health_names_the_checks_that_fail(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers = [
        (200, {"status": "ok"}),
        (503, {"status": "failed", "reason": "memory alarm"}),
        (200, {"status": "ok"}),
    ]
    assert main(["health", "--url", api.url]) == 1
    out, err = capsys.readouterr()
    assert [sent.target for sent in api.requests] == [
        "/api/health/checks/alarms",
        "/api/health/checks/local-alarms",
        "/api/health/checks/virtual-hosts",
    ]
    assert "local-alarms\tfailed\tmemory alarm\n" in out
    assert err == "warren health: failed: local-alarms\n"


def test_status_of_a_user_who_may_not_see_nodes(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    overview = {
        "cluster_name": "c",
        "rabbitmq_version": "3.13.0",
        "object_totals": {"queues": 2},
        "listeners": [],
    }
    api.answers = [(200, overview), (401, {"error": "not_authorised", "reason": "Not monitor user"})]
    assert main(["status", "--url", api.url]) == 0
    assert "product\tRabbitMQ 3.13.0\ncluster_name\tc\nqueues\t2\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["shovels", "declare", "s", "--src-queue", "q", "--dest-uri"], "dest-uri"),
        (["federation", "upstreams", "set", "up"], "uri"),
    ],
)
def test_passwords_of_uris_may_come_from_the_environment(
    api: RecordedApi,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    key: str,
) -> None:
    monkeypatch.setenv("SECRET", "a/b$c")
    given = [*words, "amqp://me:${SECRET}@b/$v", "--url", api.url]
    assert main(given) == 0
    assert api.requests[0].content["value"][key] == "amqp://me:a%2Fb%24c@b/$v"
    monkeypatch.delenv("SECRET")
    assert main(given) == 1
    assert "SECRET is no variable of the environment" in capsys.readouterr().err


def test_a_shovel_is_found_in_the_list(api: RecordedApi, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "other", "state": "starting"}, {"name": "s", "state": "running"}]
    api.answers = [(200, rows), (200, rows)]
    assert main(["shovels", "show", "s", "--url", api.url]) == 0
    assert capsys.readouterr().out == "name\ts\nstate\trunning\n"
    assert api.requests[0].target.partition("?")[0] == "/api/shovels/%2F"
    assert main(["shovels", "show", "absent", "--url", api.url]) == 1
    assert "no shovel 'absent' in vhost '/'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "parameters ls",
        "parameters ls --json",
        "global-parameters ls",
        "federation upstreams ls",
        "federation upstreams ls --json",
        "federation upstream-sets ls",
        "federation upstream-sets ls --json",
    ],
)
def test_parameters_are_printed_without_passwords(
    api: RecordedApi, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-uri": ["amqp://me:canary@b"]}}
    api.answers = [(200, [row])]
    assert main([*words.split(), "--url", api.url]) == 0
    printed = capsys.readouterr().out
    assert "amqp://me:***@b" in printed
    assert "canary" not in printed


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("shovels restart -p v", "/api/shovels/v"),
        ("move q -p v", "/api/queues/v"),
        ("copy q", "/api/queues/%2F"),
        ("bindings add", "/api/exchanges/%2F"),
        ("bindings rm e", "/api/queues/%2F"),
        ("bindings add --to-exchange e", "/api/exchanges/%2F"),
        ("policies show -p v", "/api/policies/v"),
        ("publish --exchange", "/api/exchanges/%2F"),
        ("queues ls -p", "/api/vhosts"),
        ("users delete", "/api/users"),
        ("federation upstreams delete", "/api/parameters/federation-upstream/%2F"),
        ("federation upstream-sets delete -p v", "/api/parameters/federation-upstream-set/v"),
    ],
)
def test_names_are_completed(
    api: RecordedApi, monkeypatch: pytest.MonkeyPatch, words: str, path: str
) -> None:
    monkeypatch.setenv("WARREN_URL", api.url)
    api.answers = [(200, [{"name": "orders"}, {"name": "reorders"}, {"name": ""}])]
    complete = ShellComplete(warren, {}, "warren", "_WARREN_COMPLETE")
    assert [item.value for item in complete.get_completions(words.split(), "o")] == ["orders"]
    assert api.requests[0].target.startswith(f"{path}?name=o")


def test_ids_of_federation_links_are_completed(api: RecordedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARREN_URL", api.url)
    api.answers = [(200, [{"id": "abc"}, {"id": "bcd"}])]
    complete = ShellComplete(warren, {}, "warren", "_WARREN_COMPLETE")
    found = complete.get_completions(["federation", "links", "restart"], "a")
    assert [item.value for item in found] == ["abc"]
    assert api.requests[0].target.startswith("/api/federation-links/%2F?columns=id")


@pytest.mark.parametrize(
    "words",
    [
        "parameters set c n {a:1}",
        "global-parameters set n [1",
        "federation upstream-sets set s [{upstream:up}]",
        "queues declare q --argument x-single-active-consumer={true",
        "publish q text --header h={a:1}",
    ],
)
def test_json_without_its_quotes_is_exit_2(
    api: RecordedApi, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be taken for a text, and the shell has most likely taken the quotes."""
    with pytest.raises(SystemExit) as caught:
        main([*words.split(), "--url", api.url])
    assert caught.value.code == 2
    assert "not JSON: " in capsys.readouterr().err
    assert api.requests == []


def test_property_that_messages_do_not_have_is_exit_2(
    api: RecordedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """The HTTP API would pass over it, and publish a message that does not survive a restart."""
    with pytest.raises(SystemExit) as caught:
        main(["publish", "q", "text", "--property", "delivery-mode=2", "--url", api.url])
    assert caught.value.code == 2
    assert "no property 'delivery-mode', only content_type," in capsys.readouterr().err
    assert api.requests == []


@pytest.mark.parametrize("words", ["", "config", "import", "perf", "queues", "store"])
def test_group_without_a_command_is_its_help_and_exit_2(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2
    assert "--help" in capsys.readouterr().err.partition("Options:")[2]


def test_export_to_a_file_is_said_on_a_terminal(
    api: RecordedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    api.answers = [(200, {})]
    file = tmp_path / "definitions.json"
    assert main(["definitions", "export", str(file), "--url", api.url]) == 0
    assert capsys.readouterr().out == f"definitions written to {file}\n"


ONLY_OURS = ["peek q", "move q to", "copy q to", "delete-messages q", "pause q", "resume q", "log"]


@pytest.mark.parametrize("words", ONLY_OURS)
@pytest.mark.parametrize("status", [400, 404, 405])
def test_command_that_only_warrenmq_has_says_so_of_a_rabbitmq(
    api: RecordedApi, words: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(status, None), (200, {"rabbitmq_version": "3.10.8"})]
    assert main([*words.split(), "--url", api.url]) == 1
    assert capsys.readouterr().err.endswith(" is a RabbitMQ 3.10.8: only WarrenMQ can do this\n")


@pytest.mark.parametrize("words", ONLY_OURS)
@pytest.mark.parametrize("overview", [(200, {"product_name": "WarrenMQ"}), (401, {"reason": "Not allowed"})])
def test_refusal_of_a_warrenmq_is_its_own(
    api: RecordedApi, words: str, overview: tuple[int, object], capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers = [(404, {"error": "Object Not Found", "reason": "no queue 'q'"}), overview]
    assert main([*words.split(), "--url", api.url]) == 1
    assert capsys.readouterr().err.endswith(": no queue 'q'\n")
