"""Brokers of one process that are federated with each other, and what tests do with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import aio_pika
import aiormq
from aio_pika.abc import AbstractIncomingMessage

import warren
from warren.amqp.table import Table
from warren.broker import commands as c
from warren.broker.parameters import Json
from warren.relay.federation import Federation
from warren.relay.service import Relays
from warren.relay.supervisor import State

WAIT_SECONDS_MAX = 60
RETRY_SECONDS = 0.1
V = "/"


def named_broker(name: str, directory: Path, **settings: Any) -> warren.Broker:
    """Brokers that are federated have names of their own; their data is in the directory."""
    given: dict[str, Any] = {"port": 0, "cluster_name": name, "data_dir": directory / name} | settings
    return warren.Broker(**given)


def federation_of(broker: warren.Broker) -> Federation:
    return cast("Relays", broker.services["relays"]).federation


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - links tell nobody how far they are
            await asyncio.sleep(0.005)


def set_upstream(broker: warren.Broker, name: str, uri: str, **fields: Json) -> None:
    """An upstream. In names of fields, _ stands for -."""
    value: dict[str, Json] = {"uri": uri, "reconnect-delay": RETRY_SECONDS}
    value |= {field.replace("_", "-"): given for field, given in fields.items()}
    broker.execute(c.SetParameter(vhost=V, component="federation-upstream", name=name, value=value))


def federate(broker: warren.Broker, pattern: str, apply_to: str = "exchanges", **definition: str) -> None:
    """A policy that federates with all upstreams, or as the definition says. In names, _ stands for -."""
    given: Table = {key.replace("_", "-"): value for key, value in definition.items()}
    broker.execute(
        c.PutPolicy(
            vhost=V,
            name="federated",
            pattern=pattern,
            apply_to=apply_to,
            definition=given or {"federation-upstream-set": "all"},
        )
    )


def declare_exchange(broker: warren.Broker, name: str, kind: str = "topic") -> None:
    broker.execute(c.DeclareExchange(vhost=V, name=name, type=kind))


def declare_queue(broker: warren.Broker, name: str) -> None:
    broker.execute(c.DeclareQueue(vhost=V, name=name, durable=True))


def bind(broker: warren.Broker, exchange: str, queue: str, key: str = "#", **arguments: Any) -> None:
    declare_queue(broker, queue)
    command = c.Bind(
        vhost=V, source=exchange, destination=queue, to_queue=True, routing_key=key, arguments=arguments
    )
    broker.execute(command)


def bindings_of(broker: warren.Broker, exchange: str) -> list[tuple[str, str]]:
    """Routing keys and destinations of an exchange that may not be there."""
    found = broker.node.vhosts[V].exchanges.get(exchange)
    bindings = [] if found is None else found.bindings.values()
    return sorted((binding.routing_key, binding.destination.name) for binding in bindings)


def has_key(broker: warren.Broker, exchange: str, key: str) -> bool:
    return key in [bound for bound, _ in bindings_of(broker, exchange)]


def are_running(broker: warren.Broker, count: int) -> bool:
    states = [running.supervised.status.state for running in federation_of(broker).all()]
    return len(states) == count and set(states) <= {State.RUNNING}


def count_in(broker: warren.Broker, queue: str) -> int:
    return broker.node.vhosts[V].queues[queue].message_count


async def publish(url: str, exchange: str, key: str, *bodies: bytes, **properties: Any) -> None:
    """Publish messages, and wait for the confirms."""
    connection = await aiormq.connect(url)
    try:
        channel = await connection.channel(publisher_confirms=True)
        for body in bodies:
            told = aiormq.spec.Basic.Properties(**properties)
            await channel.basic_publish(body, exchange=exchange, routing_key=key, properties=told)
    finally:
        await connection.close()


async def take(url: str, queue: str, count: int) -> list[AbstractIncomingMessage]:
    """Consume so many messages, as they come."""
    return await take_until(url, queue, lambda taken: len(taken) == count)


async def take_until(
    url: str, queue: str, is_enough: Callable[[list[AbstractIncomingMessage]], bool]
) -> list[AbstractIncomingMessage]:
    taken: list[AbstractIncomingMessage] = []
    async with asyncio.timeout(WAIT_SECONDS_MAX), await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        async with (await channel.get_queue(queue)).iterator() as messages:
            async for message in messages:
                await message.ack()
                taken.append(message)
                if is_enough(taken):
                    break
    return taken


def bodies_of(messages: list[AbstractIncomingMessage]) -> list[bytes]:
    return [message.body for message in messages]


def received_from(message: AbstractIncomingMessage) -> list[dict[str, Any]]:
    found: Any = message.headers.get("x-received-from")
    return list(found or ())


def stations(message: AbstractIncomingMessage) -> int:
    """How many brokers a message was received from."""
    return len(received_from(message))
