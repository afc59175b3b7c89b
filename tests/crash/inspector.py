"""Looks at a broker that was restarted: are the definitions and the messages those of the ledger?"""

from __future__ import annotations

import random

from tests.crash.definitions import BindingThing, Definitions, ExchangeThing, QueueThing, Thing
from tests.crash.ledger import Ledger
from tests.crash.link import Link, LinkChannel, RefusedError, connected
from tests.crash.message import Delivery
from tests.crash.topology import GARDEN_QUEUES, declare_exchange, declare_queue
from tests.support.frames import Content, published
from tests.support.process import Address
from warren.amqp import methods as m

NOT_FOUND = 404
GETS = 100
LOOK_SHARE = 0.7
KEEP_SHARES = (0.0, 0.1, 0.5, 1.0)
KEPT_MAX = 300


class Inspector:
    """Looks at most queues, and leaves a part of their messages. The others sleep on untouched."""

    def __init__(self, ledger: Ledger, definitions: Definitions, chance: random.Random) -> None:
        self.ledger = ledger
        self.definitions = definitions
        self.chance = chance

    async def look(self, address: Address, *, at_all: bool = False) -> None:
        self.definitions.restart()
        async with connected(address) as link:
            await self.look_at_things(link)
            garden = {queue.name for queue in GARDEN_QUEUES}
            for queue in self.ledger.shelves:
                if not self.definitions.is_there(QueueThing(queue)):
                    self.ledger.check(queue, [])
                elif queue in garden:
                    await self.look_at_messages(link, queue, keep_share=0)
                elif at_all or self.chance.random() < LOOK_SHARE:
                    await self.look_at_messages(link, queue, keep_share=self.chance.choice(KEEP_SHARES))
                else:
                    await self.look_at_count(link, queue)
            await self.look_at_bindings(link)

    # --- definitions ---

    async def look_at_things(self, link: Link) -> None:
        found: dict[Thing, bool] = {
            thing: await exists(link, thing)
            for thing in self.definitions.known
            if not isinstance(thing, BindingThing)
        }
        self.ledger.violations += self.definitions.check(found)

    async def look_at_bindings(self, link: Link) -> None:
        """Tries them with a message each. The queues at their ends are empty before, and empty afterwards."""
        found: dict[Thing, bool] = {}
        for thing in self.definitions.known:
            if isinstance(thing, BindingThing):
                found[thing] = self.definitions.has_ends(thing) and await leads_somewhere(link, thing)
        self.ledger.violations += self.definitions.check(found)
        channel = await link.channel()
        for queue in GARDEN_QUEUES:
            if self.definitions.is_there(queue):
                await channel.call(m.QueuePurge(queue=queue.name), m.QueuePurgeOk)

    # --- messages ---

    async def look_at_count(self, link: Link, queue: str) -> None:
        channel = await link.channel()
        declared = await channel.call(declare_queue(QueueThing(queue), passive=True), m.QueueDeclareOk)
        self.ledger.check_count(queue, declared.message_count)

    async def look_at_messages(self, link: Link, queue: str, *, keep_share: float) -> None:
        channel = await link.channel()
        count = (
            await channel.call(declare_queue(QueueThing(queue), passive=True), m.QueueDeclareOk)
        ).message_count
        self.ledger.check_count(queue, count)
        recovered = await take_all(channel, queue)
        ids = self.ledger.check(queue, recovered)
        acked = self.choose(len(recovered), keep_share)
        names = [ids[at] for at in acked]
        self.ledger.leave(queue, names)
        tags = [recovered[at].method.delivery_tag for at in acked]
        if len(acked) == len(recovered) > 0:
            await channel.send(m.BasicAck(delivery_tag=max(tags), multiple=True))
        else:
            await channel.send(*(m.BasicAck(delivery_tag=tag) for tag in tags))
        await channel.close()
        self.ledger.gone(queue, names)

    def choose(self, count: int, keep_share: float) -> list[int]:
        """Which ones to ack, in any order."""
        kept = min(round(count * keep_share), KEPT_MAX)
        return self.chance.sample(range(count), count - kept)


async def exists(link: Link, thing: QueueThing | ExchangeThing) -> bool:
    channel = await link.channel()
    try:
        if isinstance(thing, QueueThing):
            await channel.call(declare_queue(thing, passive=True), m.QueueDeclareOk)
        else:
            await channel.call(declare_exchange(thing, passive=True), m.ExchangeDeclareOk)
    except RefusedError as error:
        if error.code == NOT_FOUND:
            return False
        raise
    await channel.close()
    return True


async def leads_somewhere(link: Link, binding: BindingThing) -> bool:
    """Whether a message that is routed by this binding is not returned."""
    channel = await link.channel()
    returned: list[Content[m.Method]] = []
    channel.on_content = returned.append
    channel.on_confirm = lambda _: None
    await channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    probe = published(
        binding.exchange.name, binding.routing_key, b"probe", channel=channel.number, mandatory=True
    )
    await link.send(probe)
    await channel.wait()
    await channel.close()
    return not returned


async def take_all(channel: LinkChannel, queue: str) -> list[Delivery]:
    """Gets all messages, which stay unacked."""
    taken: list[Delivery] = []
    while True:
        for got in await channel.call_all([m.BasicGet(queue=queue)] * GETS):
            if not isinstance(got, Content):
                return taken
            assert isinstance(got.method, m.BasicGetOk), got.method
            taken.append(Content(got.method, got.properties, got.body))
