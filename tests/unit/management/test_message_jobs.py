"""Moving, copying and deleting messages over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.http_api import Answer, Api
from warren import commands
from warren.broker import message_job
from warren.broker.access import Permissions
from warren.broker.queue import Queue
from warren.management import message_jobs

PATH = "/api/queues/%2F/a"
WAIT = "?wait=60"


async def ask(
    api: Api, verb: str, path: str = PATH, *, query: str = WAIT, user: str = "guest", **body: Any
) -> Answer:
    return await api.request("POST", f"{path}/{verb}{query}", user=user, data=json.dumps(body).encode())


async def filled(api: Api, count: int = 10) -> tuple[Queue, Queue]:
    a, b = api.declare("a"), api.declare("b")
    for number in range(count):
        await api.publish(a, [b"%d" % number], headers={"number": number})
    return a, b


def bodies(queue: Queue) -> list[bytes]:
    found = []
    while (entry := queue.get(no_ack=True)) is not None:
        found.append(entry.message.body)
    return found


async def test_move_answers_with_the_job_when_it_is_done(api: Api) -> None:
    a, b = await filled(api)
    answer = await ask(api, "move", to="b", selector="number < 4")
    assert answer.status == 200
    assert answer.json == {
        "id": 1,
        "kind": "move",
        "vhost": "/",
        "from": "a",
        "to": "b",
        "selector": "number < 4",
        "count": None,
        "state": "done",
        "reason": "",
        "done": 4,
        "done_bytes": 4,
        "left_out": 0,
        "user": "guest",
    }
    assert (a.message_count, bodies(b)) == (6, [b"0", b"1", b"2", b"3"])


async def test_copy_leaves_messages_where_they_are(api: Api) -> None:
    a, b = await filled(api)
    assert (await ask(api, "copy", to="b", count=3)).json["done"] == 3
    assert (a.message_count, b.message_count) == (10, 3)


async def test_delete_messages_needs_no_body(api: Api) -> None:
    a, _ = await filled(api)
    assert (await ask(api, "delete-messages", selector="number > 7")).json["done"] == 2
    answer = await api.request("POST", f"{PATH}/delete-messages{WAIT}")
    assert (answer.json["done"], a.message_count) == (8, 0)


async def test_long_job_is_told_of_and_can_be_cancelled(api: Api) -> None:
    await filled(api)
    with patch.object(message_job, "BATCH_BYTES_MAX", 1):
        api.broker.node.raise_alarm("disk")
        begun = (await ask(api, "move", query="?wait=0", to="b")).json
        assert begun["state"] == "running"
        assert (await api.get("/api/message-jobs")).json == [begun]
        ended = await api.request("DELETE", f"/api/message-jobs/{begun['id']}")
        assert ended.json["state"] in {"running", "cancelled"}
        told = await api.get(f"/api/message-jobs/{begun['id']}{WAIT}")
    assert told.json["state"] == "cancelled"


async def test_job_that_waits_for_an_alarm_goes_on(api: Api) -> None:
    await filled(api)
    api.broker.node.raise_alarm("disk")
    begun = (await ask(api, "move", query="?wait=0", to="b")).json
    waiting = asyncio.create_task(api.get(f"/api/message-jobs/{begun['id']}{WAIT}"))
    await asyncio.sleep(0)
    api.broker.node.clear_alarm("disk")
    assert (await waiting).json["done"] == 10


@pytest.mark.parametrize(
    ("verb", "body", "status", "reason"),
    [
        ("move", {}, 400, 'expected {"to": queue, "count": number, "selector": text}'),
        ("move", {"to": "a"}, 400, "to: queue 'a' in vhost '/' is where the messages are"),
        ("move", {"to": "absent"}, 404, "no queue 'absent' in vhost '/'"),
        ("copy", {"to": "b", "count": -1}, 400, "count: expected a number from 0 on"),
        ("copy", {"to": "b", "count": True}, 400, "count: expected a number from 0 on"),
        ("copy", {"to": "b", "selector": 1}, 400, "selector: expected a text"),
        ("delete-messages", {"selector": "a ="}, 400, "selector: "),
    ],
)
async def test_request_that_makes_no_sense_is_refused(
    api: Api, verb: str, body: dict[str, Any], status: int, reason: str
) -> None:
    await filled(api, 1)
    answer = await ask(api, verb, **body)
    assert (answer.status, answer.json["reason"][: len(reason)]) == (status, reason)


@pytest.mark.parametrize("verb", ["move", "delete-messages"])
async def test_messages_of_a_stream_can_only_be_copied(api: Api, verb: str) -> None:
    api.declare("b")
    api.declare("a", queue_type="stream")
    answer = await ask(api, verb, to="b")
    assert (answer.status, answer.json["reason"]) == (
        400,
        "queue 'a' in vhost '/' is a stream: its messages can only be copied",
    )


async def test_no_more_jobs_run_than_may_and_few_that_ended_are_kept(api: Api) -> None:
    await filled(api, 1)
    with patch.object(message_jobs, "ENDED_KEPT_MAX", 2), patch.object(message_jobs, "RUNNING_MAX", 1):
        for _ in range(4):
            await ask(api, "copy", to="b")
        assert [job["id"] for job in (await api.get("/api/message-jobs")).json] == [3, 4]
        api.broker.node.raise_alarm("disk")
        await ask(api, "copy", query="?wait=0", to="b")
        assert (await ask(api, "copy", to="b")).json["reason"] == "1 jobs are under way"
        api.broker.node.clear_alarm("disk")
        await api.get(f"/api/message-jobs/5{WAIT}")


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        (Permissions(read="^a$", write="^b$"), {"move", "copy", "delete-messages"}),
        (Permissions(read="^a$"), {"delete-messages"}),
        (Permissions(write=".*", configure=".*"), set()),
    ],
)
async def test_user_needs_to_read_the_source_and_write_to_the_target(
    api: Api, permissions: Permissions, allowed: set[str]
) -> None:
    await filled(api, 1)
    api.broker.execute(commands.SetPermissions(user="manager", vhost="/", permissions=permissions))
    for verb in ("move", "copy", "delete-messages"):
        answer = await ask(api, verb, user="manager", to="b")
        assert (answer.status == 200) == (verb in allowed), (verb, answer.body)
        assert answer.status in {200, 401}


async def test_jobs_of_queues_that_a_user_may_not_read_are_not_shown(api: Api) -> None:
    await filled(api, 1)
    await ask(api, "copy", to="b")
    assert (await api.get("/api/message-jobs", user="manager")).json == []
    assert (await api.get("/api/message-jobs/1", user="manager")).status == 404
    assert (await api.get("/api/message-jobs/1")).status == 200
    assert (await api.get("/api/message-jobs/x")).status == 404
