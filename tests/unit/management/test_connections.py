"""Connections, channels and consumers over HTTP, with a real client: who sees them, and who closes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aio_pika
import aiohttp
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from tests.support.http_api import USERS, Api, make_broker, user

WAIT_SECONDS_MAX = 20
OTHERS = (user("owner", "management", read=".*"), user("stranger", "management", read=".*"))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    users = (*USERS, *OTHERS)
    async with make_broker(tmp_path / "data", users=users) as broker, aiohttp.ClientSession() as session:
        yield Api(broker, session)


@asynccontextmanager
async def client(api: Api, name: str = "owner") -> AsyncIterator[AbstractConnection]:
    """A connection of this user, whose password is the name."""
    url = f"amqp://{name}:{name}@{api.broker.address}/?heartbeat=30"
    connection = await aio_pika.connect(url, client_properties={"connection_name": f"of {name}"})
    async with connection:
        yield connection


async def closed_with(connection: AbstractConnection) -> str:
    """Wait until the broker closes the connection; return its words."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    connection.close_callbacks.add(lambda _connection, error: ended.set_result(str(error)))
    return await asyncio.wait_for(ended, WAIT_SECONDS_MAX)


async def ignore(_message: AbstractIncomingMessage) -> None:
    """Take a message, and do not ack it."""


async def only(api: Api, path: str, **more: Any) -> dict[str, Any]:
    """The only row of a list."""
    [row] = (await api.get(path, **more)).json
    found: dict[str, Any] = row
    return found


def one(row: dict[str, Any], kind: str = "connections") -> str:
    return f"/api/{kind}/{quote(row['name'], safe='')}"


async def test_connection_is_described(api: Api) -> None:
    async with client(api):
        found = await only(api, "/api/connections")
        alone = (await api.get(one(found))).json
    assert (alone["name"], alone["ssl_cipher"]) == (found["name"], "")
    properties = found.pop("client_properties")
    assert properties["connection_name"] == "of owner"
    assert properties["capabilities"]["basic.nack"] is True
    for counted in ("recv_oct", "recv_cnt", "send_oct", "send_cnt"):
        assert found.pop(counted) > 0
    assert found.pop("recv_oct_details") == found.pop("send_oct_details") == {"rate": 0.0}
    assert found["name"] == f"127.0.0.1:{found['peer_port']} -> {api.broker.address}"
    assert abs(found.pop("connected_at") - api.broker.node.clock.refresh()) < 1000 * WAIT_SECONDS_MAX
    del found["name"], found["peer_port"], found["send_pend"]
    assert found == {
        "user_provided_name": "of owner",
        "node": "warren",
        "user": "owner",
        "user_who_performed_action": "owner",
        "vhost": "/",
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "state": "running",
        "auth_mechanism": "PLAIN",
        "peer_host": "127.0.0.1",
        "host": "127.0.0.1",
        "port": api.broker.port,
        "ssl": False,
        "ssl_protocol": None,
        "ssl_key_exchange": None,
        "ssl_cipher": None,
        "ssl_hash": None,
        "peer_cert_subject": None,
        "peer_cert_issuer": None,
        "peer_cert_validity": None,
        "channels": 0,
        "channel_max": 2047,
        "frame_max": 131_072,
        "timeout": 30,
    }


async def test_channel_is_described(api: Api) -> None:
    api.declare("q")
    async with client(api) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=7)
        queue = await channel.get_queue("q")
        await queue.consume(ignore, consumer_tag="tag")
        of_connection = await only(api, "/api/connections")
        assert of_connection["channels"] == 1
        paths = ("/api/channels", "/api/vhosts/%2F/channels", one(of_connection) + "/channels")
        found = [await only(api, path) for path in paths]
        assert found[0] == found[1] == found[2]
        alone = (await api.get(one(found[0], "channels"))).json
        assert alone["consumer_details"][0]["consumer_tag"] == "tag"
        assert (alone["publishes"], alone["deliveries"]) == ([], [])
    name = f"{of_connection['name']} (1)"
    assert found[0] == {
        "name": name,
        "number": 1,
        "connection_details": {
            "name": of_connection["name"],
            "peer_host": "127.0.0.1",
            "peer_port": of_connection["peer_port"],
        },
        "node": "warren",
        "user": "owner",
        "user_who_performed_action": "owner",
        "vhost": "/",
        "state": "running",
        "confirm": True,
        "transactional": False,
        "consumer_count": 1,
        "prefetch_count": 7,
        "global_prefetch_count": 0,
        "messages_unacknowledged": 0,
        "messages_unconfirmed": 0,
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
    }


async def test_consumer_is_described(api: Api) -> None:
    api.declare("q")
    async with client(api) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=3)
        queue = await channel.get_queue("q")
        await queue.consume(ignore, consumer_tag="tag", arguments={"x-priority": 5})
        for path in ("/api/consumers", "/api/consumers/%2F"):
            found = await only(api, path)
        details = (await api.get("/api/queues/%2F/q")).json["consumer_details"]
    assert details == [found]
    told = found.pop("channel_details")
    assert (told["number"], told["user"], told["name"]) == (1, "owner", told["connection_name"] + " (1)")
    assert found == {
        "consumer_tag": "tag",
        "queue": {"name": "q", "vhost": "/"},
        "ack_required": True,
        "exclusive": False,
        "prefetch_count": 3,
        "active": True,
        "activity_status": "up",
        "arguments": {"x-priority": 5},
        "consumer_timeout": 1_800_000,
    }


async def hold(channel: AbstractChannel, name: str, count: int) -> None:
    """Consume until so many messages are out, without acks."""
    came = asyncio.Semaphore(0)
    queue = await channel.get_queue(name)

    async def take(_message: AbstractIncomingMessage) -> None:
        came.release()

    await queue.consume(take)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        for _ in range(count):
            await came.acquire()


async def test_queue_tells_what_its_consumers_hold(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"12345", b"67890", b"1"], timestamp=1_700_000_000)
    assert (await api.get("/api/queues/%2F/q")).json["head_message_timestamp"] == 1_700_000_000
    async with client(api) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=2)
        await hold(channel, "q", 2)
        found = (await api.get("/api/queues/%2F/q")).json
        assert (await only(api, "/api/channels"))["messages_unacknowledged"] == 2
    assert (found["message_bytes_unacknowledged"], found["message_bytes_ready"]) == (10, 1)
    assert (found["message_bytes"], found["messages"], found["consumers"]) == (11, 3, 1)
    assert (found["consumer_capacity"], found["consumer_utilisation"]) == (0.0, 0.0)


async def test_single_active_consumer_is_told(api: Api) -> None:
    api.declare("q", single_active_consumer=True)
    async with client(api) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("q")
        for tag in ("first", "second"):
            await queue.consume(ignore, consumer_tag=tag)
        found = {row["consumer_tag"]: row for row in (await api.get("/api/consumers")).json}
        told = (await api.get("/api/queues/%2F/q")).json
    assert [found[tag]["activity_status"] for tag in ("first", "second")] == ["single_active", "waiting"]
    assert told["single_active_consumer_tag"] == "first"


async def test_exclusive_queue_names_its_owner(api: Api) -> None:
    api.grant("owner", configure=".*", write=".*", read=".*")
    async with client(api) as connection:
        channel = await connection.channel()
        await channel.declare_queue("mine", exclusive=True)
        found = (await api.get("/api/queues/%2F/mine")).json
        owner = await only(api, "/api/connections")
    assert found["owner_pid_details"]["name"] == owner["name"]


@pytest.mark.parametrize("kind", ["connections", "channels", "consumers"])
async def test_users_see_their_own_and_monitors_all(api: Api, kind: str) -> None:
    api.declare("q")
    async with client(api) as connection:
        channel = await connection.channel()
        await (await channel.get_queue("q")).consume(ignore)
        for who, count in (("owner", 1), ("stranger", 0), ("monitor", 1), ("guest", 1)):
            of_vhost = "/api/consumers/%2F" if kind == "consumers" else f"/api/vhosts/%2F/{kind}"
            for path in (f"/api/{kind}", of_vhost):
                assert len((await api.get(path, user=who)).json) == count, (who, path)


async def test_others_do_not_see_one_connection_or_channel(api: Api) -> None:
    async with client(api) as connection:
        await connection.channel()
        row, channel = await only(api, "/api/connections"), await only(api, "/api/channels")
        for path in (one(row), f"{one(row)}/channels", "/api/connections/username/owner"):
            for who, status in (("owner", 200), ("monitor", 200), ("stranger", 401)):
                assert (await api.get(path, user=who)).status == status, (who, path)
        assert (await api.get(one(channel, "channels"), user="stranger")).status == 404


async def test_vhost_lists_only_its_own(api: Api) -> None:
    await api.request("PUT", "/api/vhosts/other")
    async with client(api) as connection:
        await connection.channel()
        for kind in ("connections", "channels"):
            assert (await api.get(f"/api/vhosts/other/{kind}")).json == []


@pytest.mark.parametrize("path", ["", "/api/connections/username/owner"])
@pytest.mark.parametrize(
    ("headers", "reason"),
    [({"X-Reason": "go away"}, "go away"), ({}, "Closed via management plugin")],
)
async def test_connection_is_closed_with_the_reason(
    api: Api, path: str, headers: dict[str, str], reason: str
) -> None:
    async with client(api) as connection, client(api, "guest"):
        row = await only(api, "/api/connections/username/owner")
        ended = asyncio.create_task(closed_with(connection))
        await asyncio.sleep(0)
        assert (await api.request("DELETE", path or one(row), headers=headers)).status == 204
        assert f"CONNECTION_FORCED - {reason}" in await ended
        assert (await api.get("/api/connections/username/owner")).json == []
        assert len((await api.get("/api/connections")).json) == 1


async def test_users_close_their_own_and_administrators_all(api: Api) -> None:
    async with client(api):
        path = one(await only(api, "/api/connections"))
        for who in ("stranger", "monitor"):
            for closing in (path, "/api/connections/username/owner"):
                answer = await api.request("DELETE", closing, user=who)
                assert (answer.status, answer.json["error"]) == (401, "not_authorised")
        assert (await api.request("DELETE", path, user="owner")).status == 204


async def test_connection_that_is_not_there_is_404(api: Api) -> None:
    for path in ("/api/connections/absent", "/api/connections/absent/channels", "/api/channels/absent"):
        assert (await api.get(path)).status == 404
    assert (await api.request("DELETE", "/api/connections/absent")).status == 404
