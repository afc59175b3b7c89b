"""Metrics of the whole broker, with RabbitMQ's names where RabbitMQ has one of the same meaning.

Counters never go down: what a closed connection, a deleted queue or a deleted vhost has counted stays in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from warren.broker.node import Node
from warren.broker.queue_totals import QueueTotals
from warren.broker.rules import QUEUE_TYPES
from warren.broker.tally import FIGURES, Bytes, Tally, VhostTally
from warren.management.prometheus_groups import (
    CHANNEL_DELIVERIES,
    CHANNEL_PUBLISHED,
    CHANNELS,
    CONNECTION_COARSE,
    CONNECTION_GAUGES,
    CONNECTION_PACKETS,
    COUNTER,
    PLAIN,
    QUEUE_COARSE,
    QUEUE_CONSUMERS,
    QUEUE_SIZES,
    Measure,
)
from warren.management.prometheus_text import Family, labels_text, single
from warren.management.totals import queue_totals, queues_here
from warren.server.app import Broker
from warren.server.metrics import Number
from warren.server.pace import at_a_pace
from warren.session.connection import Connection, connections_of
from warren.session.handshake import COMPATIBLE_VERSION
from warren.version import __version__

T = TypeVar("T")
TOTALS = {
    "connections": "Connections currently open",
    "channels": "Channels currently open",
    "consumers": "Consumers currently connected",
    "queues": "Queues available",
}
PROTOCOL = {"protocol": "amqp091"}
CHURN = {
    "connections_opened_total": ("connection_created", "Total number of connections opened"),
    "connections_closed_total": ("connection_closed", "Total number of connections closed or terminated"),
    "channels_opened_total": ("channel_created", "Total number of channels opened"),
    "channels_closed_total": ("channel_closed", "Total number of channels closed"),
    "queues_declared_total": ("queue_declared", "Total number of queues declared"),
    "queues_created_total": ("queue_created", "Total number of queues created"),
    "queues_deleted_total": ("queue_deleted", "Total number of queues deleted"),
}
"""By their names in Prometheus: the names in `Churn`, and texts."""
BY_TYPE = {
    "delivered_consume_manual_ack": ("deliver", "delivered to consumers with manual acknowledgment"),
    "delivered_consume_auto_ack": ("deliver_no_ack", "delivered to consumers with automatic acknowledgment"),
    "delivered_get_manual_ack": ("get", "delivered by basic.get with manual acknowledgment"),
    "delivered_get_auto_ack": ("get_no_ack", "delivered by basic.get with automatic acknowledgment"),
    "redelivered": ("redeliver", "redelivered to consumers"),
    "acknowledged": ("ack", "acknowledged by consumers"),
}
"""Global counters that RabbitMQ has for each type of queue: the name in `FIGURES`, and a text."""


def tally_of(node: Node) -> VhostTally:
    """The counts of all vhosts, also of those that are deleted."""
    total = VhostTally()
    total.add(node.gone)
    for vhost in node.vhosts.values():
        total.add(vhost.tally)
    return total


def identity(broker: Broker, endpoint: str) -> Iterator[Family]:
    """Which broker this is. Dashboards join it with other series, to tell nodes and clusters apart."""
    labels = {
        "rabbitmq_node": broker.node.name,
        "rabbitmq_cluster": broker.node.cluster_name,
        "rabbitmq_cluster_permanent_id": broker.store.directory.identity,
        "rabbitmq_endpoint": endpoint,
    }
    yield single("rabbitmq_identity_info", "RabbitMQ node & cluster identity info", 1, labels=labels)
    labels = {
        "rabbitmq_version": COMPATIBLE_VERSION,
        "prometheus_plugin_version": __version__,
        "prometheus_client_version": __version__,
        "erlang_version": "none",
        "product_name": "WarrenMQ",
        "product_version": __version__,
    }
    yield single(
        "rabbitmq_build_info", "Version of WarrenMQ, and of RabbitMQ that it is like", 1, labels=labels
    )


def churn(broker: Broker, prefix: str) -> Iterator[Family]:
    counts = dict(zip(broker.churn.NAMES, broker.churn.figures(broker.node), strict=True))
    for name, (counted, text) in CHURN.items():
        yield single(prefix + name, text, counts[counted], COUNTER)


def global_counters(node: Node) -> Iterator[Family]:
    """What clients have sent and got, since the broker started."""
    tally = tally_of(node)
    clients = tally.clients
    received = {
        "received": ("received from publishers", clients.published),
        "received_confirm": ("received from publishers expecting confirmations", clients.with_confirms),
        "confirmed": ("confirmed to publishers", clients.confirmed),
        "routed": ("routed to queues or streams", clients.routed),
        "unroutable_dropped": ("published as non-mandatory and dropped as unroutable", clients.dropped),
        "unroutable_returned": ("published as mandatory and returned as unroutable", clients.returned),
    }
    for name, (text, number) in received.items():
        yield _global(f"messages_{name}_total", f"Total number of messages {text}", {"": number})
    types = {kind: tally.of_type(kind) for kind in QUEUE_TYPES}
    delivered = {kind: counted.delivered for kind, counted in types.items()}
    yield _global("messages_delivered_total", "Total number of messages delivered to consumers", delivered)
    for name, (figure, text) in BY_TYPE.items():
        place = FIGURES.index(figure)
        numbers = {kind: counted.figures()[place] for kind, counted in types.items()}
        yield _global(f"messages_{name}_total", f"Total number of messages {text}", numbers)
    empty = {kind: counted.got_empty for kind, counted in types.items()}
    text = "Total number of times basic.get operations fetched no message"
    yield _global("messages_get_empty_total", text, empty)


def _global(name: str, text: str, numbers: dict[str, int]) -> Family:
    """A global counter: one number, or one for each type of queue."""
    samples = []
    for kind, number in numbers.items():
        of_type = {"queue_type": f"rabbit_{kind}_queue"} if kind else {}
        samples.append(("", labels_text(PROTOCOL | of_type), number))
    return Family(f"rabbitmq_global_{name}", text, COUNTER, samples)


@dataclass(frozen=True)
class Together:
    """All channels and connections together, also those that are closed, as measures know one of them."""

    tally: Tally
    passed: Bytes

    def bytes(self) -> Bytes:
        return self.passed


def all_together(node: Node) -> Together:
    """Sums up in one turn, so that nothing is counted twice or forgotten because it ends meanwhile."""
    passed = Bytes()
    passed.add(node.gone.bytes)
    for connection in connections_of(node):
        passed.add(connection.bytes())
    return Together(tally_of(node).total(), passed)


def counters(node: Node) -> Iterator[Family]:
    together = all_together(node)
    for of_channels in (*CHANNEL_PUBLISHED, *CHANNEL_DELIVERIES):
        yield _single(of_channels, of_channels.read(together))
    for of_connections in (*CONNECTION_COARSE, *CONNECTION_PACKETS):
        yield _single(of_connections, of_connections.read(together))
    text = "Total number of messages published to queues"
    yield single("rabbitmq_queue_messages_published_total", text, together.tally.routed, COUNTER)


def _single(measure: Measure[T], number: Number) -> Family:
    return single(PLAIN + measure.name, measure.text, number, measure.kind)


class Gauges:
    """Sums over all queues, connections and channels, made in bounded turns."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sums: Counter[str] = Counter()  # by names of metrics, without the prefix
        self.queues = QueueTotals()

    async def sum_up(self) -> None:
        queues = self.queues = await queue_totals(queues_here(list(self.node.vhosts.values())))
        self.sums = Counter(
            queues=queues.queues,
            consumers=queues.consumers,
            queue_consumers=queues.consumers,
            queue_messages_ready=queues.ready,
            queue_messages_ready_bytes=queues.ready_bytes,
            queue_messages_unacked=queues.unacked,
            queue_messages=queues.ready + queues.unacked,
        )
        async for connection in at_a_pace(connections_of(self.node)):
            self._add_connection(connection)

    def _add_connection(self, connection: Connection) -> None:
        channels = connection.open_channels()
        self.sums["connections"] += bool(connection.vhost_name)
        self.sums["channels"] += len(channels)
        for gauge in CONNECTION_GAUGES:
            self.sums[gauge.name] += int(gauge.read(connection))
        for channel in channels:
            self.sums["publishers"] += channel.tally.published > 0
            for measure in CHANNELS:
                self.sums[measure.name] += int(measure.read(channel))

    def families(self) -> Iterator[Family]:
        for name, text in TOTALS.items():
            yield single(PLAIN + name, text, self.sums[name])
        for queues in (*QUEUE_COARSE, *QUEUE_CONSUMERS, *QUEUE_SIZES):
            yield _single(queues, self.sums[queues.name])
        for channels in CHANNELS:
            yield _single(channels, self.sums[channels.name])
        for connections in CONNECTION_GAUGES:
            yield _single(connections, self.sums[connections.name])
        yield single(
            "rabbitmq_global_publishers",
            "Publishers currently connected",
            self.sums["publishers"],
            labels=PROTOCOL,
        )
        yield single(
            "rabbitmq_global_consumers",
            "Consumers currently connected",
            self.sums["consumers"],
            labels=PROTOCOL,
        )
        text = "Messages that the slowest reader of a stream has not read yet"
        yield single("warren_stream_reader_lag_max", text, self.queues.stream_lag_max)
