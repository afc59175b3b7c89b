"""What tests of relays share whose brokers are killed: brokers that come back, numbers that pass, a verdict.

A publisher numbers its messages, and notes which were confirmed. A collector notes the numbers that arrive.
Afterwards each confirmed number has to be there, and in order, but for those that come again: after a kill a
relay begins anew with the first message that it had not acked for certain.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import urllib.request
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.crash.link import LinkChannel, RefusedError, connected
from tests.support.errors import EndedError
from tests.support.frames import BODY, HEADER, Content, encode_frame, encode_header, method_frame
from tests.support.process import Address, BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties

SEED = int(os.environ.get("RELAY_SEED", str(random.randrange(10**6))))
BETWEEN_KILLS_SECONDS = (0.3, 1.5)
LOOK_SECONDS = 0.05
WAIT_SECONDS_MAX = 120
PREFETCH = 200
BURST, WINDOW = 200, 2_000
BURSTS_A_SECOND = float(os.environ.get("RELAY_BURSTS", "20"))  # 4,000 messages a second
NUMBER = "{:010}"
PROPERTIES = BasicProperties(delivery_mode=PERSISTENT)
HEADERS = {"Authorization": "Basic " + b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}
log = logging.getLogger(__name__)


class Killable(Protocol):
    """A broker that can be killed and started again, at the same address."""

    http_url: str

    @property
    def address(self) -> Address: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...


class OurBroker:
    """A WarrenMQ process with the cluster name `name`."""

    def __init__(self, directory: Path, name: str) -> None:
        settings = directory / f"{name}.toml"
        settings.write_text(f'cluster_name = "{name}"\n')
        self.data_dir = directory / name
        self.arguments = ("--config", str(settings))
        self.process: BrokerProcess | None = None
        self.http_url = ""

    @property
    def address(self) -> Address:
        assert self.process is not None, "it was started"
        return self.process.address

    def start(self) -> None:
        port = () if self.process is None else ("--port", str(self.process.address.port))
        self.process = BrokerProcess(self.data_dir, *self.arguments, *port)
        self.process.launch()
        self.process.wait_until_ready()
        self.http_url = self.process.http_url

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


@asynccontextmanager
async def our_brokers(directory: Path, *names: str) -> AsyncIterator[list[OurBroker]]:
    brokers = [OurBroker(directory, name) for name in names]
    try:
        for broker in brokers:
            broker.start()
        yield brokers
    finally:
        for broker in brokers:
            broker.kill()


def put(broker: Killable, path: str, content: object) -> None:
    request = urllib.request.Request(  # noqa: S310 - our own brokers
        f"{broker.http_url}/api/{path}", data=json.dumps(content).encode(), headers=HEADERS, method="PUT"
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        answer.read()


def get(broker: Killable, path: str) -> Any:
    request = urllib.request.Request(f"{broker.http_url}/api/{path}", headers=HEADERS)  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return json.load(answer)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for this. Publishers and collectors, which are clients of brokers that die, tell nobody."""
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {WAIT_SECONDS_MAX} s: {what}; {repeat()}") from None


def repeat() -> str:
    return f"repeat with RELAY_SEED={SEED}"


async def keep(work: Callable[[LinkChannel], Awaitable[None]], broker: Killable) -> None:
    """Do this over a connection, and over the next one when the broker has died."""
    while True:
        try:
            async with connected(broker.address) as link:
                await work(await link.channel())
                return
        except (EndedError, RefusedError, OSError):  # refused: the queue is not there yet
            await asyncio.sleep(LOOK_SECONDS)


class Numbers:
    """Publishes numbers, each once. Those whose confirm was lost in a kill may be there or not."""

    def __init__(self, broker: Killable, exchange: str, routing_key: str) -> None:
        self.broker = broker
        self.head = method_frame(1, m.BasicPublish(exchange=exchange, routing_key=routing_key))
        self.head += encode_frame(HEADER, 1, encode_header(len(NUMBER.format(0)), PROPERTIES))
        self.last = 0
        self.confirmed: set[int] = set()
        self.in_flight: dict[int, int] = {}  # by delivery tag
        self.tag = 0
        self.is_stopping = False
        self.task = asyncio.create_task(keep(self._publish, broker))

    async def _publish(self, channel: LinkChannel) -> None:
        self.in_flight, self.tag = {}, 0
        channel.on_confirm = self._confirmed
        await channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        while not self.is_stopping:
            await channel.link.send(b"".join(self._next() for _ in range(BURST)))
            await asyncio.sleep(1 / BURSTS_A_SECOND)
            while len(self.in_flight) > WINDOW:
                await channel.wait()
        while self.in_flight:
            await channel.wait()

    def _next(self) -> bytes:
        self.last += 1
        self.tag += 1
        self.in_flight[self.tag] = self.last
        return self.head + encode_frame(BODY, 1, NUMBER.format(self.last).encode())

    def _confirmed(self, confirm: m.BasicAck | m.BasicNack) -> None:
        assert isinstance(confirm, m.BasicAck), "no queue here refuses anything"
        tag = confirm.delivery_tag
        tags = [each for each in self.in_flight if each <= tag] if confirm.multiple else [tag]
        self.confirmed.update(self.in_flight.pop(each) for each in tags)

    async def stop(self) -> None:
        """Publish no more, and wait for the last confirms."""
        self.is_stopping = True
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self.task


class Collector:
    """Consumes a queue, and notes what arrives, in order. What it has not acked for certain comes again."""

    def __init__(self, broker: Killable, queue: str) -> None:
        self.queue = queue
        self.numbers: list[int] = []
        self.seen: set[int] = set()
        self.task = asyncio.create_task(keep(self._consume, broker))

    async def _consume(self, channel: LinkChannel) -> None:
        tags: list[int] = []

        def take(content: Content[m.Method]) -> None:
            assert isinstance(content.method, m.BasicDeliver)
            self.numbers.append(int(content.body))
            self.seen.add(self.numbers[-1])
            tags.append(content.method.delivery_tag)

        channel.on_content = take
        await channel.call(m.BasicQos(prefetch_count=WINDOW), m.BasicQosOk)
        await channel.call(m.BasicConsume(queue=self.queue, arguments={}), m.BasicConsumeOk)
        while True:
            await channel.wait()
            if tags:
                await channel.send(m.BasicAck(delivery_tag=tags[-1], multiple=True))
                tags.clear()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def kill_often(brokers: Sequence[Killable], kills: int, chance: random.Random) -> None:
    """Kill one of these brokers, by chance, and start it again; so many times."""
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(*BETWEEN_KILLS_SECONDS))
        broker = chance.choice(brokers)
        broker.kill()
        await asyncio.to_thread(broker.start)


async def declare(broker: Killable, *methods: m.Method) -> None:
    async with connected(broker.address) as link:
        await (await link.channel()).call_all(methods)


async def count_in(broker: Killable, queue: str) -> int:
    async with connected(broker.address) as link:
        channel = await link.channel()
        passive = m.QueueDeclare(queue=queue, passive=True, arguments={})
        return (await channel.call(passive, m.QueueDeclareOk)).message_count


async def empty(broker: Killable, queue: str) -> None:
    """Wait until nothing waits in this queue."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while await count_in(broker, queue):  # noqa: ASYNC110 - a queue tells nobody
            await asyncio.sleep(LOOK_SECONDS)


@dataclass
class Verdict:
    """What has arrived, compared with what was confirmed."""

    confirmed: set[int]
    arrived: list[int]

    @property
    def steps_back(self) -> list[int]:
        """Wherever a number is not above the one before: how many come again from there."""
        steps = []
        for before, after in zip(self.arrived, self.arrived[1:], strict=False):
            if after <= before:
                steps.append(before - after + 1)
        return steps

    def check(self, *, steps_max: int) -> None:
        """Nothing is lost, the order is kept, and all that came twice came behind one of so many kills."""
        lost = self.confirmed - set(self.arrived)
        assert not lost, f"{len(lost)} of {len(self.confirmed)} lost, such as {min(lost)}; {repeat()}"
        first_seen = list(dict.fromkeys(self.arrived))
        assert first_seen == sorted(first_seen), f"out of order; {repeat()}"
        assert len(self.steps_back) <= steps_max, f"{len(self.steps_back)} steps back; {repeat()}"
        log.info(
            "%d confirmed, %d arrived, %d of them again, by steps of %s",
            len(self.confirmed),
            len(self.arrived),
            len(self.arrived) - len(first_seen),
            self.steps_back,
        )
