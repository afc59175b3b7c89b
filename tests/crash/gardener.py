"""A client that makes and deletes exchanges, queues and bindings all the time."""

from __future__ import annotations

from tests.crash.definitions import BindingThing, ExchangeThing, QueueThing, Thing
from tests.crash.link import LinkChannel, connected
from tests.crash.message import MessageMaker, Route
from tests.crash.publishers import Confirms
from tests.crash.stage import Stage
from tests.crash.topology import GARDEN, GARDEN_QUEUES, declare_exchange, declare_queue
from warren.amqp import methods as m

MESSAGES_MAX = 5
PUBLISH_SHARE = 0.3


class Gardener:
    def __init__(self, stage: Stage, maker: MessageMaker) -> None:
        self.stage = stage
        self.definitions = stage.definitions
        self.maker = maker
        self.chance = stage.chance(maker.publisher)

    async def run(self) -> None:
        async with connected(self.stage.address) as link:
            channel = await link.channel()
            confirms = Confirms(self.stage, channel)
            await confirms.select()
            while True:
                await self.tend(channel, self.chance.choice(GARDEN))
                if self.chance.random() < PUBLISH_SHARE:
                    await self.publish(confirms, self.chance.choice(GARDEN_QUEUES))

    async def tend(self, channel: LinkChannel, thing: Thing) -> None:
        if self.definitions.is_there(thing):
            await self.delete(channel, thing)
        elif not isinstance(thing, BindingThing) or self.definitions.has_ends(thing):
            await self.declare(channel, thing)

    async def declare(self, channel: LinkChannel, thing: Thing) -> None:
        self.definitions.declare(thing)
        if isinstance(thing, QueueThing):
            await channel.call(declare_queue(thing), m.QueueDeclareOk)
        elif isinstance(thing, ExchangeThing):
            await channel.call(declare_exchange(thing), m.ExchangeDeclareOk)
        else:
            queue, exchange, key = thing.names()
            bind = m.QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments={})
            await channel.call(bind, m.QueueBindOk)
        self.definitions.declared(thing)

    async def delete(self, channel: LinkChannel, thing: Thing) -> None:
        self.definitions.delete(thing)
        if isinstance(thing, QueueThing):
            await self.delete_queue(channel, thing)
        elif isinstance(thing, ExchangeThing):
            await channel.call(m.ExchangeDelete(exchange=thing.name), m.ExchangeDeleteOk)
        else:
            queue, exchange, key = thing.names()
            unbind = m.QueueUnbind(queue=queue, exchange=exchange, routing_key=key, arguments={})
            await channel.call(unbind, m.QueueUnbindOk)
        self.definitions.absent(thing)

    async def delete_queue(self, channel: LinkChannel, queue: QueueThing) -> None:
        """The queue's messages go with it, and must not be there if it is declared again."""
        if queue.durable:
            self.stage.ledger.leave_all(queue.name)
        await channel.call(m.QueueDelete(queue=queue.name), m.QueueDeleteOk)
        if queue.durable:
            self.stage.ledger.all_gone(queue.name)

    async def publish(self, confirms: Confirms, queue: QueueThing) -> None:
        if queue.durable and self.definitions.is_there(queue):
            route = Route("", queue.name, (queue.name,))
            count = self.chance.randint(1, MESSAGES_MAX)
            await confirms.publish([self.maker.make(self.chance, route) for _ in range(count)])
            await confirms.wait()
