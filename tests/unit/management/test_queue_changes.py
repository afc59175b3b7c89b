"""Queues over HTTP: declaring, purging and deleting them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_api import Api
from warren import commands
from warren.management.context import Context

Q = "/api/queues/%2F/q"


async def put(api: Api, **body: Any) -> int:
    return (await api.send("PUT", Q, body)).status


async def test_declaring_is_201_and_again_204_and_otherwise_400(api: Api) -> None:
    assert await put(api, durable=True, arguments={"x-max-length": 5}) == 201
    assert await put(api, durable="true", arguments={"x-max-length": 5}) == 204
    answer = await api.send("PUT", Q, {"durable": False, "arguments": {"x-max-length": 5}})
    assert (answer.status, answer.json) == (
        400,
        {
            "error": "bad_request",
            "reason": "inequivalent arg 'durable' for queue 'q' in vhost '/': "
            "received 'false' but current is 'true'",
        },
    )
    assert await put(api, durable=True, arguments={"x-max-length": 6}) == 400


async def test_queue_is_transient_unless_told_otherwise(api: Api) -> None:
    assert (await api.request("PUT", Q)).status == 201
    assert not api.vhost.queues["q"].durable


async def test_what_is_declared_is_there_after_a_restart(api: Api) -> None:
    assert await put(api, durable=True, arguments={"x-queue-type": "quorum"}) == 201
    await api.restart()
    assert (await api.get(Q)).json["type"] == "quorum"


@pytest.mark.parametrize(
    "body",
    [
        {"arguments": {"x-max-length": -1}},
        {"arguments": {"x-message-ttl": "soon"}},
        {"arguments": {"x-queue-type": "quorum"}},  # which has to be durable
        {"arguments": []} | {"durable": []},
    ],
)
async def test_definition_that_makes_no_sense_is_400(api: Api, body: dict[str, Any]) -> None:
    assert await put(api, **body) == 400
    assert "q" not in api.vhost.queues


@pytest.mark.parametrize("data", [b"no JSON", b"[]", b'{"durable": true', b"[" * 100_000])
async def test_body_that_is_no_object_is_400(api: Api, data: bytes) -> None:
    assert (await api.request("PUT", Q, data=data)).status == 400


async def test_dead_lettering_needs_permissions_of_both(api: Api) -> None:
    api.grant("manager", configure=".*", read="", write="")
    body = {"arguments": {"x-dead-letter-exchange": "amq.fanout"}}
    assert (await api.send("PUT", Q, {}, user="manager")).status == 201
    assert (await api.send("PUT", "/api/queues/%2F/r", body, user="manager")).status == 401
    api.grant("manager", configure=".*", read=".*", write=".*")
    assert (await api.send("PUT", "/api/queues/%2F/r", body, user="manager")).status == 201


async def test_queue_is_deleted_unless_it_has_to_be_empty_or_unused(api: Api) -> None:
    await api.publish(api.declare("q"), [b"1"])
    answer = await api.request("DELETE", f"{Q}?if-empty=true")
    assert (answer.status, answer.json["reason"]) == (400, "queue 'q' in vhost '/' not empty")
    assert (await api.request("DELETE", f"{Q}?if-unused=true")).status == 204
    assert (await api.request("DELETE", Q)).status == 404


async def test_exclusive_queue_can_be_deleted_but_not_purged(api: Api) -> None:
    owner = api.broker.node.new_client_id()
    api.broker.execute(commands.DeclareQueue(vhost="/", name="q", owner=owner))
    assert (await api.request("DELETE", f"{Q}/contents")).status == 400
    assert (await api.request("DELETE", Q)).status == 204
    assert "q" not in api.vhost.queues


async def test_queue_is_purged(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"1", b"2", b"3"])
    assert queue.get(no_ack=False) is not None
    assert (await api.request("DELETE", f"{Q}/contents")).status == 204
    found = (await api.get(Q)).json
    assert (found["messages_ready"], found["messages_unacknowledged"]) == (0, 1)


async def test_stream_is_not_purged(api: Api) -> None:
    api.declare("q", queue_type="stream")
    assert (await api.request("DELETE", f"{Q}/contents")).status == 400


async def test_queue_of_an_exchange_is_purged_but_not_deleted(api: Api) -> None:
    body = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
    assert (await api.send("PUT", "/api/exchanges/%2F/late", body)).status == 201
    assert (await api.request("DELETE", "/api/queues/%2F/amq.delayed.late/contents")).status == 204
    assert (await api.request("DELETE", "/api/queues/%2F/amq.delayed.late")).status == 401


@pytest.mark.parametrize(("action", "status"), [("sync", 204), ("cancel_sync", 204), ("dance", 400)])
async def test_actions_of_mirrored_queues_are_taken(api: Api, action: str, status: int) -> None:
    api.declare("q")
    assert (await api.send("POST", f"{Q}/actions", {"action": action})).status == status


async def test_user_without_permissions_changes_nothing(api: Api) -> None:
    await api.publish(api.declare("q"), [b"1"])
    for method, path in (("PUT", "/api/queues/%2F/new"), ("DELETE", Q), ("DELETE", f"{Q}/contents")):
        answer = await api.request(method, path, user="manager")
        assert (answer.status, answer.json["error"]) == (401, "not_authorised"), path
    assert list(api.vhost.queues) == ["q"]
    assert api.vhost.queues["q"].message_count == 1


async def test_user_without_the_vhost_is_refused(api: Api) -> None:
    await api.request("PUT", "/api/vhosts/other")
    answer = await api.request("PUT", "/api/queues/other/q", user="manager")
    assert answer.json["reason"] == "User not authorised to access virtual host"


async def test_queue_that_is_deleted_while_it_is_declared_again_is_no_error(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await put(api) == 201
    execute = Context.execute

    async def execute_slowly(context: Context, *given: commands.Command) -> None:
        await execute(context, *given)
        api.broker.execute(commands.DeleteQueue(vhost="/", name="q"))

    monkeypatch.setattr(Context, "execute", execute_slowly)
    assert await put(api) == 204


@pytest.mark.parametrize(
    ("node", "status"), [("warren", 201), ("", 201), ("rabbit@elsewhere", 400), (5, 400)]
)
async def test_queue_is_declared_on_this_node_only(api: Api, node: object, status: int) -> None:
    assert (await api.put("/api/queues/%2F/new", {"durable": True, "node": node})).status == status
    assert ("new" in api.vhost.queues) == (status == 201)
