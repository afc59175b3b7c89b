"""A broker in this process with its HTTP API, and a client of it; messages get in and out by the model."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

import warren
from tests.support.fakes import quick_hash
from warren import commands
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.access import Permissions
from warren.broker.message import Message
from warren.broker.queue import Queue
from warren.server.config import UserConfig

SEGMENT_BYTES = 4096


def user(name: str, *tags: str, read: str | None = None) -> UserConfig:
    """A user whose password is the name. Without `read` the user has no permissions at all."""
    permissions = {} if read is None else {"/": Permissions("", "", read)}
    return UserConfig(
        name=name, password_hash=quick_hash(name), tags=frozenset(tags), permissions=permissions
    )


GUEST = UserConfig(
    name="guest",
    password_hash=quick_hash("guest"),
    tags=frozenset({"administrator"}),
    permissions={"/": Permissions(".*", ".*", ".*")},
)
USERS = (
    GUEST,
    user("reader", read="^open"),
    user("manager", "management", read=""),
    user("monitor", "monitoring"),
)


def make_broker(data_dir: Path, **settings: Any) -> warren.Broker:
    given: dict[str, Any] = {"http_port": 0, "users": USERS, "segment_bytes": SEGMENT_BYTES} | settings
    return warren.Broker(port=0, data_dir=data_dir, **given)


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    def __init__(self, broker: warren.Broker, session: aiohttp.ClientSession) -> None:
        self.broker = broker
        self.session = session
        self.vhost = broker.node.vhosts["/"]

    async def request(
        self,
        method: str,
        path: str,
        *,
        user: str = "guest",
        password: str | None = None,
        headers: dict[str, str] | None = None,
        data: bytes | aiohttp.FormData | None = None,
    ) -> Answer:
        address = self.broker.services["http"].address
        login = f"{user}:{user if password is None else password}"
        given = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if user else {}
        url = URL(f"http://{address}{path}", encoded=True)
        async with self.session.request(method, url, headers=given | (headers or {}), data=data) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.request("GET", path, **more)

    async def put(self, path: str, value: object, **more: Any) -> Answer:
        return await self.request("PUT", path, data=json.dumps(value).encode(), **more)

    async def post(self, path: str, value: object, **more: Any) -> Answer:
        return await self.request("POST", path, data=json.dumps(value).encode(), **more)

    async def delete(self, path: str, **more: Any) -> Answer:
        return await self.request("DELETE", path, **more)

    async def send(self, method: str, path: str, body: object, **more: Any) -> Answer:
        """A request with this body as JSON."""
        return await self.request(method, path, data=json.dumps(body).encode(), **more)

    async def restart(self) -> None:
        await self.broker.stop()
        await self.broker.start()
        self.vhost = self.broker.node.vhosts["/"]

    def grant(self, user: str, *, configure: str, write: str, read: str) -> None:
        permissions = Permissions(configure, write, read)
        self.broker.execute(commands.SetPermissions(user=user, vhost="/", permissions=permissions))

    def declare(self, name: str, **arguments: Any) -> Queue:
        table: Table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.broker.execute(commands.DeclareQueue(vhost="/", name=name, durable=True, arguments=table))
        return self.vhost.queues[name]

    async def publish(self, queue: Queue, bodies: list[bytes], **properties: Any) -> None:
        """Publish persistent messages, and wait until they are on disk."""
        encoded = BasicProperties(delivery_mode=2, **properties).encode()
        now_ms = self.broker.node.clock.refresh()
        for body in bodies:
            queue.publish(Message(encode_name(""), encode_name(queue.name), encoded, body, True, now_ms))
        await self.end_turn()

    async def end_turn(self) -> None:
        safe: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.broker.store.safety.when_safe(safe.set_result)
        self.broker.node.end_turn()
        await safe
