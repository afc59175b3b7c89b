"""Two brokers, `here` and `there`, and what tests of relays do with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self, cast

import warren
from tests.support.http_api import GUEST
from warren import commands
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.message import Message
from warren.broker.parameters import Json
from warren.broker.queue import Queue
from warren.relay.service import RelayName, Relays
from warren.relay.supervisor import Status

WAIT_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.01


class Yard:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.here = self.make("here")
        self.there = self.make("there")
        self.stack = AsyncExitStack()

    def make(self, name: str, port: int = 0) -> warren.Broker:
        return warren.Broker(port=port, data_dir=self.directory / name, users=(GUEST,))

    async def __aenter__(self) -> Self:
        for broker in (self.here, self.there):
            await broker.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        for broker in (self.here, self.there):
            await broker.stop()

    def uri(self, broker: warren.Broker, vhost: str = "%2F") -> str:
        return f"amqp://guest:guest@{broker.address}/{vhost}"

    def queue(self, broker: warren.Broker, name: str = "q", **arguments: object) -> Queue:
        table = cast("Table", {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()})
        broker.execute(commands.DeclareQueue(vhost="/", name=name, durable=True, arguments=table))
        return broker.node.vhosts["/"].queues[name]

    async def publish(
        self, broker: warren.Broker, queue: Queue, bodies: list[bytes], **properties: object
    ) -> None:
        await put_into(broker, queue, bodies, **properties)

    def shovel(self, name: str = "s", /, **definition: Json) -> RelayName:
        """A shovel of `here`: `src_queue="q"` is the key `src-queue`."""
        value = {key.replace("_", "-"): given for key, given in definition.items()}
        self.here.execute(commands.SetParameter(vhost="/", component="shovel", name=name, value=value))
        return RelayName("/", name)

    @property
    def relays(self) -> Relays:
        return cast("Relays", self.here.services["relays"])

    def status(self, name: str = "s") -> Status:
        return self.relays.shovels[RelayName("/", name)].status

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for this; what is waited for has no event of its own."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not is_so():  # noqa: ASYNC110 - queues and relays have no events for tests
                await asyncio.sleep(LOOK_SECONDS)


def taken(queue: Queue) -> list[Message]:
    """All messages of a queue, in order; they leave it."""
    found = []
    while (entry := queue.get(no_ack=True)) is not None:
        found.append(entry.message)
    return found


async def put_into(broker: warren.Broker, queue: Queue, bodies: list[bytes], **properties: object) -> None:
    """Persistent messages, all at once, which are on disk when this returns."""
    encoded = BasicProperties(delivery_mode=2, **properties).encode()  # type: ignore[arg-type]
    now_ms = broker.node.clock.refresh()
    for body in bodies:
        queue.publish(Message(encode_name(""), encode_name(queue.name), encoded, body, True, now_ms))
    safe: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    broker.store.safety.when_safe(safe.set_result)
    broker.node.end_turn()
    await safe
