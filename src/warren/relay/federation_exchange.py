"""A federated exchange: a queue upstream gets what bindings here ask for.

    upstream                                                              here
    exchange x --bindings as here--> exchange, internal ----> queue ====> exchange x --bindings--> queues
                                     `federation: x -> here A`   `federation: x -> here`

The internal exchange is of the type `x-federation-upstream`, which holds back messages that would go in
circles; a broker that lacks this type gets a fanout. When a link begins anew, bindings may be there that are
gone here. So it makes a second internal exchange, `… B`, with the bindings of now, and deletes the first.
The names and arguments are RabbitMQ's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from warren.amqp.table import Int64, Table
from warren.broker.exchange.exchange import Exchange
from warren.broker.exchange.federation_upstream import DOWNSTREAM_NAME, DOWNSTREAM_VHOST, MAX_HOPS, TYPE
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.relay.ends import End
from warren.relay.federation_bindings import Wanted, Way, wanted_bindings
from warren.relay.federation_headers import exchange_station, rewrite_for_exchange
from warren.relay.federation_link import Upstairs, ask_once, exists
from warren.relay.federation_upstream import Upstream
from warren.relay.link import RelayLink, closed_on_failure
from warren.relay.pump import NO_ACK, Rewrite

COMMAND_INVALID, PRECONDITION_FAILED = 503, 406
UNKNOWN_TYPE = {COMMAND_INVALID, PRECONDITION_FAILED}  # what brokers say of a type of exchange they lack
NAME_BYTES_MAX = 255
LETTERS = ("A", "B")  # of the two internal exchanges, of which one is in use
INTERNAL_PURPOSE, FEDERATION = "x-internal-purpose", "federation"
PURPOSE: Table = {INTERNAL_PURPOSE: FEDERATION}


class ExchangeSide:
    def __init__(self, cluster_name: str, vhost: str, exchange: Exchange, upstream: Upstream) -> None:
        self.cluster_name = cluster_name  # of this broker
        self.vhost = vhost
        self.exchange = exchange
        self.upstream = upstream
        self.there = upstream.exchange or exchange.name  # the name of the exchange there
        self.letter = LETTERS[0]  # of the internal exchange in use
        self.way: Way | None = None  # while there is a link
        self.bound: Wanted = {}  # the bindings upstream
        self.changed = asyncio.Event()

    def queue_name(self, end: End) -> str:
        """The name of the queue there. If vhost or exchange are called otherwise here, it says so."""
        place = ""
        if end.uri.vhost != self.vhost:
            place = f":{self.vhost}:{self.exchange.name}"
        elif self.exchange.name != self.there:
            place = f":{self.exchange.name}"
        return f"federation: {self.there} -> {self.cluster_name}{place}"

    # --- before messages come ---

    async def prepare(self, upstairs: Upstairs) -> RelayLink:
        queue = self.queue_name(upstairs.end)
        if len(f"{queue} {self.letter}".encode()) > NAME_BYTES_MAX:
            raise ClientError(f"the name of the queue upstream would be too long: {queue}")
        if not await exists(upstairs, passive(self.there)):
            await ask_once(upstairs, self._as_here(), ExchangeDeclareOk)
        old, self.letter = (
            LETTERS if await exists(upstairs, passive(f"{queue} {LETTERS[0]}")) else LETTERS[::-1]
        )
        await self._declare_internal(upstairs, f"{queue} {self.letter}")
        link = await upstairs.open_for(self.upstream)
        async with closed_on_failure(link):
            await self._bind_all(link, upstairs.end, queue)
            gone = ExchangeDelete(exchange=f"{queue} {old}")
            await link.ask(gone, ExchangeDeleteOk, channel=link.commands)  # behind the new bindings
        return link

    def _as_here(self) -> ExchangeDeclare:
        """Declares the exchange there like the one here."""
        return ExchangeDeclare(
            exchange=self.there,
            type=self.exchange.type,
            durable=self.exchange.durable,
            auto_delete=self.exchange.auto_delete,
            arguments=self.exchange.arguments,
        )

    async def _declare_internal(self, upstairs: Upstairs, name: str) -> None:
        """An exchange of this name may be left from before: it goes, with its bindings."""
        await ask_once(upstairs, ExchangeDelete(exchange=name), ExchangeDeleteOk)
        try:
            await ask_once(upstairs, self._internal(name, TYPE), ExchangeDeclareOk)
        except ClosedByBrokerError as error:
            if error.code not in UNKNOWN_TYPE:
                raise
            await ask_once(upstairs, self._internal(name, "fanout"), ExchangeDeclareOk)

    def _internal(self, name: str, kind: str) -> ExchangeDeclare:
        arguments = dict(PURPOSE)
        if kind == TYPE:
            arguments |= {
                MAX_HOPS: Int64(self.upstream.max_hops),
                DOWNSTREAM_NAME: self.cluster_name,
                DOWNSTREAM_VHOST: self.vhost,
            }
        return ExchangeDeclare(
            exchange=name, type=kind, durable=True, internal=True, auto_delete=True, arguments=arguments
        )

    async def _bind_all(self, link: RelayLink, end: End, queue: str) -> None:
        declare = QueueDeclare(queue=queue, durable=True, arguments=self._queue_arguments())
        await link.ask(declare, QueueDeclareOk)
        bind = QueueBind(queue=queue, exchange=f"{queue} {self.letter}", arguments={})
        await link.ask(bind, QueueBindOk)
        self.bound = {}
        self.way = Way(
            cluster_name=self.cluster_name,
            vhost=self.vhost,
            place=f"{self.vhost}:{self.exchange.name} {self.letter}",
            upstream_name=cluster_name_of(link),
            upstream_vhost=end.uri.vhost,
            max_hops=self.upstream.max_hops,
        )
        await self._follow_once(link, f"{queue} {self.letter}")

    def _queue_arguments(self) -> Table:
        upstream = self.upstream
        given = {"x-expires": upstream.expires, "x-message-ttl": upstream.message_ttl}
        arguments: Table = {name: Int64(value) for name, value in given.items() if value is not None}
        if upstream.queue_type is not None:
            arguments["x-queue-type"] = upstream.queue_type
        if upstream.ha_policy is not None:
            arguments["x-ha-policy"] = upstream.ha_policy
        return arguments | PURPOSE

    # --- while messages come ---

    def rewrite(self, upstream: RelayLink, end: End) -> Rewrite:
        station = exchange_station(
            end.shown, self.exchange.name, cluster_name_of(upstream), vhost=end.uri.vhost
        )
        return rewrite_for_exchange(
            self.exchange.name,
            station,
            max_hops=self.upstream.max_hops,
            here=(self.cluster_name, self.vhost),
            trust_user_id=self.upstream.trust_user_id,
        )

    async def follow(self, upstream: RelayLink, end: End) -> None:
        queue, no_ack = self.queue_name(end), self.upstream.ack_mode == NO_ACK
        internal = f"{queue} {self.letter}"
        await upstream.ask(BasicConsume(queue=queue, no_ack=no_ack, arguments={}), BasicConsumeOk)
        while True:
            await self.changed.wait()
            await self._follow_once(upstream, internal)

    async def _follow_once(self, link: RelayLink, internal: str) -> None:
        """Bind and unbind upstream, until the bindings are those of here."""
        assert self.way is not None, "there is a link"
        self.changed.clear()
        wanted = wanted_bindings(list(self.exchange.bindings.values()), self.way)
        new = [
            ExchangeBind(destination=internal, source=self.there, routing_key=key, arguments=arguments)
            for (key, encoded), arguments in wanted.items()
            if (key, encoded) not in self.bound
        ]
        gone = [
            ExchangeUnbind(destination=internal, source=self.there, routing_key=key, arguments=arguments)
            for (key, encoded), arguments in self.bound.items()
            if (key, encoded) not in wanted
        ]
        is_awaited = not self.upstream.bind_nowait
        await ask_all(link, new, ExchangeBindOk, is_awaited=is_awaited)
        await ask_all(link, gone, ExchangeUnbindOk, is_awaited=is_awaited)
        self.bound = wanted

    # --- afterwards ---

    async def clean_up(self, upstairs: Upstairs) -> None:
        queue = self.queue_name(upstairs.end)
        link = await upstairs.open()
        try:
            await link.ask(QueueDelete(queue=queue), QueueDeleteOk)
            for letter in LETTERS:
                await link.ask(ExchangeDelete(exchange=f"{queue} {letter}"), ExchangeDeleteOk)
        finally:
            await link.close()


def passive(exchange: str) -> ExchangeDeclare:
    """Asks whether there is an exchange of this name."""
    return ExchangeDeclare(exchange=exchange, passive=True, arguments={})


def cluster_name_of(link: RelayLink) -> str | None:
    name = link.server_properties.get("cluster_name")
    return name if isinstance(name, str) else None


async def ask_all(
    link: RelayLink,
    methods: Sequence[ExchangeBind | ExchangeUnbind],
    reply: type[Method],
    *,
    is_awaited: bool,
) -> None:
    """Only the last is answered, if that is awaited: then the broker has done the others, too."""
    sent = methods[:-1] if is_awaited else methods
    for method in sent:
        link.output.method(link.commands, replace(method, no_wait=True).encode())
        if not link.output.has_room():
            link.flush()
    link.flush()
    if is_awaited and methods:
        await link.ask(methods[-1], reply, channel=link.commands)
