"""Clients that consume: they ack, requeue, hold back, close channels and connections, and vanish."""

from __future__ import annotations

from collections import deque

from tests.crash.link import Link, LinkChannel, connected
from tests.crash.stage import Stage
from tests.support.frames import Content
from warren.amqp import methods as m

PREFETCH_COUNTS = (1, 3, 20, 100)
HANDLED_MAX = 300
PROOF_SHARE = 0.3


class Session:
    """One consumer on one channel."""

    def __init__(self, stage: Stage, name: str, queue: str, channel: LinkChannel) -> None:
        self.stage = stage
        self.ledger = stage.ledger
        self.chance = stage.chance(name)
        self.queue = queue
        self.channel = channel
        self.prefetch = self.chance.choice(PREFETCH_COUNTS)
        self.inbox: deque[tuple[int, str]] = deque()  # delivery tag and id
        self.held: dict[int, str] = {}
        self.unproven: list[str] = []
        self.closing = False
        channel.on_content = self.take

    def take(self, content: Content[m.Method]) -> None:
        assert isinstance(content.method, m.BasicDeliver), content.method
        delivery = Content(content.method, content.properties, content.body)
        name = self.ledger.deliver(self.queue, delivery, late=self.closing or self.stage.ending)
        self.inbox.append((content.method.delivery_tag, name))

    async def run(self) -> None:
        """Until some messages are handled."""
        await self.channel.call(m.BasicQos(prefetch_count=self.prefetch), m.BasicQosOk)
        self.ledger.open_window(self.queue, self.prefetch)
        await self.channel.call(m.BasicConsume(queue=self.queue, arguments={}), m.BasicConsumeOk)
        left = self.chance.randint(1, HANDLED_MAX)
        while left > 0:
            while not self.inbox:
                await self.channel.wait()
            left -= len(self.inbox)
            await self.settle()
            if self.chance.random() < PROOF_SHARE:
                await self.prove()

    async def settle(self) -> None:
        """Does something with all that has arrived."""
        if self.chance.random() < 0.3:
            methods = self.settle_together()
        else:
            methods = [method for tag, name in self.inbox for method in self.settle_one(tag, name)]
            self.inbox.clear()
        await self.channel.send(*methods)

    def settle_together(self) -> list[m.Method]:
        self.held.update(self.inbox)
        self.inbox.clear()
        last, names = max(self.held), list(self.held.values())
        self.held.clear()
        if self.chance.random() < 0.2:
            return [m.BasicNack(delivery_tag=last, multiple=True, requeue=True)]
        self.leave(names)
        return [m.BasicAck(delivery_tag=last, multiple=True)]

    def settle_one(self, tag: int, name: str) -> list[m.Method]:
        lot = self.chance.random()
        if lot < 0.1 and len(self.held) < self.prefetch - 1:
            self.held[tag] = name
            return []
        if lot < 0.2:
            return [m.BasicNack(delivery_tag=tag, requeue=True)]
        if lot < 0.25:
            return [m.BasicReject(delivery_tag=tag, requeue=True)]
        self.leave([name])
        if lot < 0.3:
            return [m.BasicReject(delivery_tag=tag, requeue=False)]
        return [m.BasicAck(delivery_tag=tag)]

    def leave(self, names: list[str]) -> None:
        self.ledger.leave(self.queue, names)
        self.unproven += names

    async def prove(self) -> None:
        """Asks the queue behind the acks: when it answers, it has handled them."""
        proven, self.unproven = self.unproven, []
        await self.channel.call(
            m.QueueDeclare(queue=self.queue, passive=True, arguments={}), m.QueueDeclareOk
        )
        self.ledger.gone(self.queue, proven)

    def closed(self) -> None:
        """The broker has said so: all acks are handled, and all that was sent has arrived."""
        self.ledger.gone(self.queue, self.unproven)
        self.ledger.close_window(self.queue, self.prefetch)


class Consumer:
    """Consumes from one queue, by one session after the other."""

    def __init__(self, stage: Stage, name: str, queue: str) -> None:
        self.stage = stage
        self.name = name
        self.queue = queue
        self.chance = stage.chance(name)
        self.sessions = 0

    async def run(self) -> None:
        while True:
            async with connected(self.stage.address) as link:
                while link.error is None:
                    await self.run_session(link)

    async def run_session(self, link: Link) -> None:
        self.sessions += 1
        session = Session(self.stage, f"{self.name}/{self.sessions}", self.queue, await link.channel())
        await session.run()
        session.closing = True
        lot = self.chance.random()
        if lot < 0.4:
            await session.channel.close()
            session.closed()
        elif lot < 0.6:
            await link.close()
            session.closed()
        else:
            await link.abort(rudely=lot < 0.8)
