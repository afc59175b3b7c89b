"""Clients that publish: with confirms, and in transactions."""

from __future__ import annotations

import random

from tests.crash.link import LinkChannel, connected
from tests.crash.message import Message, MessageMaker, publish_bytes
from tests.crash.stage import Stage
from tests.crash.topology import CONSUMED, ROUTES
from warren.amqp import methods as m

WINDOWS = (1, 10, 100, 300)
BURST_MAX = 30


class Confirms:
    """What waits for its confirm on one channel."""

    def __init__(self, stage: Stage, channel: LinkChannel) -> None:
        self.stage = stage
        self.channel = channel
        self.waiting: dict[int, Message] = {}
        self.last_tag = 0
        channel.on_confirm = self.take

    async def select(self) -> None:
        await self.channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)

    def take(self, method: m.BasicAck | m.BasicNack) -> None:
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self.waiting if tag <= method.delivery_tag]
        for tag in tags:
            message = self.waiting.pop(tag)
            if isinstance(method, m.BasicAck):
                self.stage.confirm(message)

    async def publish(self, messages: list[tuple[Message, bytes]]) -> None:
        """Sends them all at once."""
        frames = []
        for message, body in messages:
            self.last_tag += 1
            self.waiting[self.last_tag] = message
            self.stage.ledger.publish(message)
            frames.append(publish_bytes(message, body, self.channel.number))
        await self.channel.link.send(b"".join(frames))

    async def wait(self, waiting_max: int = 0) -> None:
        while len(self.waiting) > waiting_max:
            await self.channel.wait()


async def publish_with_confirms(stage: Stage, maker: MessageMaker) -> None:
    """Publishes bursts, and has at most a window of messages that are not confirmed."""
    chance = stage.chance(maker.publisher)
    window = chance.choice(WINDOWS)
    async with connected(stage.address) as link:
        confirms = Confirms(stage, await link.channel())
        await confirms.select()
        while True:
            burst = chance.randint(1, min(window, BURST_MAX))
            await confirms.publish(make_messages(chance, maker, burst))
            await confirms.wait(window - 1)


def make_messages(chance: random.Random, maker: MessageMaker, count: int) -> list[tuple[Message, bytes]]:
    return [maker.make(chance, chance.choice(ROUTES)) for _ in range(count)]


class TransactionClient:
    """Publishes, and takes messages out of queues, in transactions of which most are committed."""

    def __init__(self, stage: Stage, maker: MessageMaker) -> None:
        self.stage = stage
        self.maker = maker
        self.chance = stage.chance(maker.publisher)
        self.held: list[tuple[str, str, int]] = []  # queue, id and delivery tag

    async def run(self) -> None:
        async with connected(self.stage.address) as link:
            while True:
                channel = await link.channel()
                await channel.call(m.TxSelect(), m.TxSelectOk)
                for _ in range(self.chance.randint(1, 10)):
                    await self.transact(channel)
                await self.do_half(channel)
                await channel.close()
                self.held.clear()

    async def transact(self, channel: LinkChannel) -> None:
        messages = await self.do_half(channel)
        if self.chance.random() < 0.2:
            await channel.call(m.TxRollback(), m.TxRollbackOk)  # what is held stays so
            return
        ledger = self.stage.ledger
        for message in messages:
            ledger.publish(message)
        for queue, name, _ in self.held:
            ledger.leave(queue, [name])
        await channel.call(m.TxCommit(), m.TxCommitOk)
        for message in messages:
            self.stage.confirm(message)
        for queue, name, _ in self.held:
            ledger.gone(queue, [name])
        self.held.clear()

    async def do_half(self, channel: LinkChannel) -> list[Message]:
        """All of a transaction but its end. Until it is committed, for all others nothing has happened."""
        for _ in range(self.chance.randint(0, 3)):
            await self.take_one(channel, self.chance.choice(CONSUMED))
        made = make_messages(self.chance, self.maker, self.chance.randint(0, 8))
        frames = [publish_bytes(message, body, channel.number) for message, body in made]
        await channel.link.send(b"".join(frames))
        await channel.send(*(m.BasicAck(delivery_tag=tag) for _, _, tag in self.held))
        return [message for message, _ in made]

    async def take_one(self, channel: LinkChannel, queue: str) -> None:
        self.stage.ledger.open_window(queue, 1)
        got = await channel.get(queue)
        self.stage.ledger.close_window(queue, 1)
        if got is not None:
            name = self.stage.ledger.deliver(queue, got, late=self.stage.ending)
            self.held.append((queue, name, got.method.delivery_tag))
