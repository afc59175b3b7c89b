"""A shovel: one life of it, from connecting both ends until something ends it. `supervisor.py` starts it
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.properties import decode_properties
from warren.amqp.table import Table
from warren.broker.message import Message
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.relay.ends import End, open_end
from warren.relay.link import RelayLink, closed_on_failure
from warren.relay.pump import NO_ACK, ON_CONFIRM, Pump, Rewrite
from warren.relay.shovel_definition import NEVER, QUEUE_LENGTH, ShovelDefinition
from warren.server.app import Broker

PRODUCT = "WarrenMQ shovel"
NOT_FOUND = 404
METHODS_CACHED_MAX = 1024


class Shovel:
    def __init__(
        self, broker: Broker, vhost: str, name: str, definition: ShovelDefinition, *, kind: str
    ) -> None:
        self.broker = broker
        self.vhost = vhost
        self.name = name
        self.definition = definition
        self.kind = kind  # `dynamic`: a parameter; `static`: in the configuration
        self.carried_before = 0  # messages, in earlier lives
        self.turn = 0  # which of several URIs is tried next
        self.source_end: End | None = None  # to which it is connected
        self.destination_end: End | None = None
        self.pump: Pump | None = None  # while it runs
        self.queue = ""  # that it consumes, while it runs

    def __repr__(self) -> str:
        return f"<Shovel {self.name!r} in {self.vhost!r}>"

    @property
    def carried(self) -> int:
        return self.carried_before + (self.pump.carried if self.pump is not None else 0)

    @property
    def pending(self) -> int:
        """Messages that have come, and that the destination has not confirmed."""
        return 0 if self.pump is None else len(self.pump.waiting) + len(self.pump.unconfirmed)

    @property
    def flow(self) -> str:
        """Whether the destination takes messages now, in RabbitMQ's words."""
        if self.pump is None:
            return "running"
        if self.pump.destination.blocked:
            return "blocked"
        return "flow" if self.pump.destination.congested or self.pump.rest is not None else "running"

    @property
    def sockets(self) -> int:
        """How many of its links are sockets."""
        ends = () if self.pump is None else (self.source_end, self.destination_end)
        return sum(end is not None and not end.is_here for end in ends)

    @property
    def reconnect_seconds(self) -> float:
        return self.definition.reconnect_seconds

    async def run(self, running: Callable[[], None]) -> bool:
        """Carry messages until something breaks, which raises `ClientError`. Return True if the shovel is
        done for good. `running` is called when both ends are connected, and the source delivers.
        """
        if isinstance(self.definition.delete_after, int) and self.carried >= self.definition.delete_after:
            return True
        source = destination = None
        turn, self.turn = self.turn, self.turn + 1
        try:
            self.destination_end = pick(self.definition.destination, turn)
            with failing("destination"):
                destination = await self._open_destination(self.destination_end)
            self.source_end = pick(self.definition.source, turn)
            with failing("source"):
                source, waiting = await self._open_source(self.source_end)
            return await self._carry(source, destination, waiting, running)
        except asyncio.CancelledError:
            if self.pump is not None:
                await self.pump.drain()
            raise
        finally:
            if self.pump is not None:
                self.carried_before += self.pump.carried
                self.pump = None
            await close_both(source, destination)

    def stop_taking(self) -> None:
        if self.pump is not None:
            self.pump.stop_taking()

    async def _carry(
        self, source: RelayLink, destination: RelayLink, waiting: int, running: Callable[[], None]
    ) -> bool:
        definition = self.definition
        pump = self.pump = Pump(
            source, destination, self._rewrite(), ack_mode=definition.ack_mode, limit=self._limit(waiting)
        )
        pump.start()
        if not pump.done.done():
            with failing("source"):
                await self._consume(source)
        running()
        ends: set[asyncio.Future[Any]] = {source.ended, destination.ended, pump.done}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for link, name in ((source, "source"), (destination, "destination")):
            if not pump.done.done() and link.ended.done():
                with failing(name):
                    raise link.ended.result()
        return True

    def _limit(self, waiting: int) -> int | None:
        after = self.definition.delete_after
        if after == NEVER:
            return None
        return waiting if after == QUEUE_LENGTH else int(after) - self.carried_before

    async def _open(self, end: End) -> RelayLink:
        return await open_end(self.broker, end, self.vhost, PRODUCT, f"Shovel {self.name}")

    # --- the source ---

    async def _open_source(self, end: End) -> tuple[RelayLink, int]:
        """The link, with a channel that can consume, and how many messages wait there."""
        definition = self.definition
        if definition.source_queue:
            link, waiting = await self._with_queue(
                end,
                definition.source_queue,
                definition.source_queue_arguments,
                may_declare=not definition.source_predeclared,
            )
        else:
            link, waiting = await self._open(end), 0
        self.queue = definition.source_queue
        async with closed_on_failure(link):
            if definition.source_exchange:
                self.queue = await self._bound_queue(link)
            if definition.prefetch_count and definition.ack_mode != NO_ACK:
                await link.ask(BasicQos(prefetch_count=definition.prefetch_count), BasicQosOk)
        return link, waiting

    async def _bound_queue(self, link: RelayLink) -> str:
        """A queue of the shovel's own, bound to the source's exchange."""
        declared = await link.ask(QueueDeclare(exclusive=True, arguments={}), QueueDeclareOk)
        bind = QueueBind(
            queue=declared.queue,
            exchange=self.definition.source_exchange,
            routing_key=self.definition.source_key,
            arguments={},
        )
        await link.ask(bind, QueueBindOk)
        return declared.queue

    async def _with_queue(
        self, end: End, name: str, arguments: Table, *, may_declare: bool
    ) -> tuple[RelayLink, int]:
        """A link to a broker that has this queue. If it has none, the queue is declared, if it may be."""
        link = await self._open(end)
        try:
            declare = QueueDeclare(queue=name, passive=True, arguments={})
            return link, (await link.ask(declare, QueueDeclareOk)).message_count
        except ClosedByBrokerError as error:
            await link.close()
            if error.code != NOT_FOUND or not may_declare:
                raise
        except BaseException:
            await link.close()
            raise
        link = await self._open(end)
        async with closed_on_failure(link):
            declare = QueueDeclare(queue=name, durable=True, arguments=arguments)
            return link, (await link.ask(declare, QueueDeclareOk)).message_count

    async def _consume(self, source: RelayLink) -> None:
        consume = BasicConsume(
            queue=self.queue,
            no_ack=self.definition.ack_mode == NO_ACK,
            arguments=self.definition.consumer_arguments,
        )
        await source.ask(consume, BasicConsumeOk)

    # --- the destination ---

    async def _open_destination(self, end: End) -> RelayLink:
        definition = self.definition
        if definition.destination_queue:
            link, _ = await self._with_queue(
                end,
                definition.destination_queue,
                definition.destination_queue_arguments,
                may_declare=not definition.destination_predeclared,
            )
        else:
            link = await self._open(end)
        async with closed_on_failure(link):
            if definition.ack_mode == ON_CONFIRM:
                await link.ask(ConfirmSelect(), ConfirmSelectOk)
        return link

    def _rewrite(self) -> Rewrite:
        """How messages are changed on their way."""
        definition = self.definition
        exchange, key = definition.destination_exchange, definition.destination_key
        if definition.destination_queue:
            exchange, key = "", definition.destination_queue

        @lru_cache(METHODS_CACHED_MAX)
        def method_for(from_exchange: bytes, from_key: bytes) -> bytes:
            return BasicPublish(
                exchange=name_in(from_exchange) if exchange is None else exchange,
                routing_key=name_in(from_key) if key is None else key,
            ).encode()

        if (
            not definition.properties
            and not definition.add_forward_headers
            and not definition.add_timestamp_header
        ):
            return lambda message, _: (method_for(message.exchange, message.routing_key), message.properties)
        forwarded = self._forward_headers()
        return lambda message, _: (
            method_for(message.exchange, message.routing_key),
            self._properties_for(message, forwarded),
        )

    def _properties_for(self, message: Message, forwarded: Table) -> bytes:
        properties = decode_properties(message.properties)
        for name, value in self.definition.properties.items():
            setattr(properties, name, value)
        headers = dict(properties.headers or {})
        if self.definition.add_forward_headers:
            before = headers.get("x-shovelled")
            headers["x-shovelled"] = [forwarded, *(before if isinstance(before, list) else [])]
        if self.definition.add_timestamp_header:
            headers["x-shovelled-timestamp"] = self.broker.world.time_ms() // 1000
        properties.headers = headers or None
        return properties.encode()

    def _forward_headers(self) -> Table:
        """What `add-forward-headers` tells of this shovel, under RabbitMQ's names."""
        definition = self.definition
        told: Table = {
            "shovelled-by": self.broker.node.cluster_name,
            "shovel-type": self.kind,
            "shovel-name": self.name,
            "shovel-vhost": self.vhost,
            "src-uri": shown(self.source_end),
            "dest-uri": shown(self.destination_end),
        }
        named = {
            "src-queue": definition.source_queue,
            "src-exchange": definition.source_exchange,
            "src-exchange-key": definition.source_key,
            "dest-queue": definition.destination_queue,
            "dest-exchange": definition.destination_exchange,
            "dest-exchange-key": definition.destination_key,
        }
        told.update({name: value for name, value in named.items() if value})
        return told


@contextmanager
def failing(end: str) -> Iterator[None]:
    """Name the end in what goes wrong there: a reason such as a refused login may be of either."""
    try:
        yield
    except ClientError as error:
        raise ClientError(f"{end}: {error}") from error


def pick(ends: tuple[End, ...], turn: int) -> End:
    return ends[turn % len(ends)]


def shown(end: End | None) -> str:
    return "" if end is None else end.shown


def name_in(short_string: bytes) -> str:
    """The text of a short string as it is on the wire, with its length octet."""
    return short_string[1:].decode("utf-8", "surrogateescape")


async def close_both(*links: RelayLink | None) -> None:
    await asyncio.gather(*(link.close() for link in links if link is not None))
