"""`/api/queues`: queues as RabbitMQ describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from aiohttp import web

from warren.amqp.properties import decode_properties
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.queue_figures import QueueFigures
from warren.broker.rules import CLASSIC, queue_type
from warren.broker.vhost import Vhost
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.columns import object_endpoint, send_object
from warren.management.consumers import describe as describe_consumer
from warren.management.consumers import single_active_tag
from warren.management.context import Context
from warren.management.endpoint import Endpoint, Parameter
from warren.management.listing import ON, Row, list_endpoint, send_list
from warren.management.message_stats import QUERY as STATS_QUERY
from warren.management.message_stats import stats_for
from warren.management.paths import QUEUE, VHOST
from warren.management.peers import connection_details
from warren.management.queue_details import details_of
from warren.management.schema import FLAG
from warren.server.queue_figures import consumers_on, figures_of
from warren.session.channel import Channel
from warren.session.connection import Connection

DISABLE_STATS = Parameter("disable_stats", FLAG, "Whether to leave out all figures.")
QUEUE_TOTALS = Parameter("enable_queue_totals", FLAG, "With `disable_stats`: give numbers of messages.")
SAMPLED = {"message_stats", "messages_details", "messages_ready_details", "messages_unacknowledged_details"}
ENTRY_BYTES = 400  # about: what a message takes in memory besides its body


class Queues:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        query = (*STATS_QUERY, DISABLE_STATS, QUEUE_TOTALS)
        return [
            list_endpoint("/api/queues", self.all, "The queues of all vhosts that the user sees.", query),
            list_endpoint("/api/queues/detailed", self.all, "The same: nothing is left out above.", query),
            list_endpoint(f"/api/queues/{VHOST}", self.of_vhost, "The queues of a vhost.", query),
            object_endpoint(f"/api/queues/{VHOST}/{QUEUE}", self.get, "One queue.", STATS_QUERY),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_vhosts(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, [visible_vhost(self.node, request)])

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The consumers are told as well, and what takes longer to find out."""
        vhost = visible_vhost(self.node, request)
        queue = vhost.find_queue(request.match_info["queue"])
        told = describe(self.node, vhost, queue) | stats_for(self.context, request).of_queue(queue)
        told |= Places(self.context).of(queue)
        told |= {"consumer_details": consumers_of(self.node, queue)}
        return send_object(request, told | await details_of(self.node, self.context.store.files, queue))

    async def _send(self, request: web.Request, vhosts: list[Vhost]) -> web.StreamResponse:
        queues = await self.context.queue_order.of(vhosts)
        vhost_of = {vhost.name: vhost for vhost in vhosts}  # a vhost may be deleted while its rows are sent
        places = Places(self.context)

        def defined(queue: Queue) -> Row:
            row = definition(self.node, vhost_of[queue.vhost], queue)
            row |= places.of(queue)
            return row

        if request.query.get(DISABLE_STATS.name) == ON:
            with_totals = request.query.get(QUEUE_TOTALS.name) == ON
            return await send_list(
                request, queues, lambda queue: defined(queue) | (totals(queue) if with_totals else {})
            )
        stats = stats_for(self.context, request)

        def whole(queue: Queue) -> Row:
            row = describe(self.node, vhost_of[queue.vhost], queue)
            row |= stats.of_queue(queue)
            row |= places.of(queue)
            return row

        def part_with(queue: Queue, column: str) -> Row:
            if column in TOTALS:
                return totals(queue)
            make = FIGURES.get(column)
            if make is None:
                return stats.of_queue(queue) if column in SAMPLED else defined(queue)
            figures = figures_of(queue)
            return {} if figures is None else make(queue, figures)

        return await send_list(request, queues, whole, part_with=part_with)


class Places:
    """Where queues are that several nodes of a cluster keep, as the time of a request has it."""

    def __init__(self, context: Context) -> None:
        self.cluster = context.cluster
        self.by_shard = {} if self.cluster is None else self.cluster.places()

    def of(self, queue: Queue) -> Row:
        """As RabbitMQ tells of quorum queues and streams; empty for a queue that one node keeps."""
        shard = None if self.cluster is None else self.cluster.shard_of(queue.vhost, queue.name)
        place = None if shard is None else self.by_shard.get(shard)
        if place is None:
            return {}
        no_leader = {} if place.leader else {"state": "down"}
        return no_leader | {
            "node": place.leader,
            "leader": place.leader,
            "members": place.members,
            "online": place.online,
            "shard": shard,
        }


def describe(node: Node, vhost: Vhost, queue: Queue) -> Row:
    row = definition(node, vhost, queue) | totals(queue)
    figures = figures_of(queue)
    if figures is not None:
        row |= sizes(queue, figures)
        row |= consuming(queue, figures)
    return row


def _state(queue: Queue) -> str:
    if queue.unavailable:
        return "minority"
    if queue.paused:
        return "paused"
    return "flow" if queue.holding else "running"


def definition(node: Node, vhost: Vhost, queue: Queue) -> Row:
    """What the queue is, without any figures."""
    policy, operator_policy = vhost.policies.names_of(queue)
    kind = queue_type(queue.arguments)
    told: Row = {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": kind,
        "node": queue.home if isinstance(queue, QueueElsewhere) else node.name,
        "state": _state(queue),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "internal": queue.internal,
        "arguments": queue.arguments,
        "policy": policy,
        "operator_policy": operator_policy,
        "effective_policy_definition": vhost.policies.in_force(queue).settings,
    }
    if queue.owner is not None and queue.owner in node.clients:
        told["owner_pid_details"] = connection_details(cast("Connection", node.clients[queue.owner]))
    if kind != CLASSIC:
        told |= {"leader": node.name, "members": [node.name], "online": [node.name]}
    return told


def totals(queue: Queue) -> Row:
    """Lists are often sorted by these, so they are had without the other figures."""
    if not isinstance(queue, QueueElsewhere):
        ready, unacked = queue.message_count, queue.unacked
    elif queue.figures is not None:
        ready, unacked = queue.figures.ready, queue.figures.unacked
    else:
        return {}
    return {
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }


def sizes(queue: Queue, figures: QueueFigures) -> Row:
    """Of unacked messages, those that consumers hold are counted, and not those that basic.get took. Memory
    is an estimate: entries, and the bodies of messages that are held as entries.
    """
    in_memory, in_memory_bytes = figures.held + figures.unacked, figures.held_bytes + figures.unacked_bytes
    head = queue.head()
    return {
        "message_bytes": figures.ready_bytes + figures.unacked_bytes,
        "message_bytes_ready": figures.ready_bytes,
        "message_bytes_unacknowledged": figures.unacked_bytes,
        "message_bytes_ram": in_memory_bytes,
        "message_bytes_paged_out": figures.ready_bytes - figures.held_bytes,
        "messages_ram": in_memory,
        "messages_ready_ram": figures.held,
        "messages_unacknowledged_ram": figures.unacked,
        "messages_paged_out": figures.ready - figures.held,
        "memory": in_memory_bytes + ENTRY_BYTES * in_memory,
        "head_message_timestamp": None if head is None else decode_properties(head.properties).timestamp,
    }


def consuming(queue: Queue, figures: QueueFigures) -> Row:
    exclusive = queue.exclusive_consumer
    ability = float(figures.has_room)
    return {
        "consumers": figures.consumers,
        "consumer_capacity": ability,  # in RabbitMQ over a while; here whether one can take a message now
        "consumer_utilisation": ability,
        "exclusive_consumer_tag": None if exclusive is None else exclusive.tag,
        "single_active_consumer_tag": single_active_tag(queue),
    }


def consumers_of(node: Node, queue: Queue) -> list[Row]:
    told: list[Row] = []
    for consumer in consumers_on(queue):
        channel = cast("Channel", consumer.channel)
        told.append(describe_consumer(node, cast("Connection", channel.connection), channel, consumer))
    return told


TOTALS = {"messages", "messages_ready", "messages_unacknowledged"}
FIGURES: dict[str, Callable[[Queue, QueueFigures], Row]] = {
    **dict.fromkeys(
        (
            "head_message_timestamp",
            "memory",
            "message_bytes",
            "message_bytes_paged_out",
            "message_bytes_ram",
            "message_bytes_ready",
            "message_bytes_unacknowledged",
            "messages_paged_out",
            "messages_ram",
            "messages_ready_ram",
            "messages_unacknowledged_ram",
        ),
        sizes,
    ),
    **dict.fromkeys(
        (
            "consumer_capacity",
            "consumer_utilisation",
            "consumers",
            "exclusive_consumer_tag",
            "single_active_consumer_tag",
        ),
        consuming,
    ),
}
"""By its name, what makes a column with figures of the present. `TOTALS` are made by `totals`, those in
`SAMPLED` from samples, and all others are of the definition.
"""
