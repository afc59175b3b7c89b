"""Metrics of single queues, channels, connections, exchanges and vhosts, in the groups that RabbitMQ calls
families: `/metrics/detailed?family=queue_coarse_metrics`. Names are RabbitMQ's, without the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from warren.broker.exchange.exchange import Exchange
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.stream import stream_of
from warren.broker.tally import FIGURES, Bytes, Tally
from warren.broker.vhost import Vhost
from warren.management.prometheus_text import Family, labels_text
from warren.management.totals import queues_here
from warren.server.metrics import Labels, Number
from warren.session.channel import Channel
from warren.session.connection import Connection, connections_of

T = TypeVar("T")
O_contra = TypeVar("O_contra", contravariant=True)
GAUGE, COUNTER = "gauge", "counter"
PLAIN, DETAILED, CLUSTER = "rabbitmq_", "rabbitmq_detailed_", "rabbitmq_cluster_"


class Counted(Protocol):
    """Anything that counts messages."""

    @property
    def tally(self) -> Tally: ...


class Passed(Protocol):
    """Anything that bytes went over."""

    def bytes(self) -> Bytes: ...


@dataclass(frozen=True)
class Measure(Generic[O_contra]):
    """One number of an object."""

    name: str
    kind: str
    text: str
    read: Callable[[O_contra], Number]


class Labelled(Generic[T]):
    """Objects with the text of their labels, which is made when it is first needed: of very many, some in
    each turn.
    """

    def __init__(self, objects: Iterable[T], labels: Callable[[T], Labels]) -> None:
        self.objects = list(objects)
        self.labels = labels
        self.texts: list[str] = []

    def __iter__(self) -> Iterator[tuple[T, str]]:
        for index, each in enumerate(self.objects):
            if index == len(self.texts):
                self.texts.append(labels_text(self.labels(each)))
            yield each, self.texts[index]


class Objects:
    """All that there is in some vhosts, with labels, for one answer."""

    def __init__(self, node: Node, vhosts: Sequence[Vhost]) -> None:
        names = {vhost.name for vhost in vhosts}
        connections = [each for each in connections_of(node) if each.vhost_name in names]
        self.vhosts = Labelled(vhosts, lambda vhost: {"vhost": vhost.name})
        self.queues = Labelled(
            queues_here(vhosts),
            lambda queue: {"vhost": queue.vhost, "queue": queue.name},
        )
        self.exchanges = Labelled(
            ((vhost.name, each) for vhost in vhosts for each in vhost.exchanges.values()),
            lambda each: {"vhost": each[0], "exchange": each[1].name},
        )
        self.typed_exchanges = Labelled(
            self.exchanges.objects, lambda each: {**self.exchanges.labels(each), "type": each[1].type}
        )
        self.connections = Labelled(connections, lambda connection: {"connection": connection.name})
        self.channels = Labelled(
            (channel for connection in connections for channel in connection.open_channels()),
            lambda channel: {"channel": f"{channel.origin.connection} ({channel.number})"},
        )


def families_of(measures: Iterable[Measure[T]], objects: Labelled[T], prefix: str) -> Iterator[Family]:
    """A family for each measure, with a sample for each object. If there are no objects, there are none."""
    if not objects.objects:
        return
    for measure in measures:
        yield Family(prefix + measure.name, measure.text, measure.kind, _samples(measure, objects))


def _samples(measure: Measure[T], objects: Labelled[T]) -> Iterator[tuple[str, str, Number]]:
    for each, labels in objects:
        yield "", labels, measure.read(each)


# --- their numbers ---


def _unconfirmed(channel: Channel) -> int:
    return channel.confirms.published - channel.confirms.confirmed if channel.confirms.on else 0


def _figure(name: str) -> Callable[[Counted], int]:
    place = FIGURES.index(name)
    return lambda counted: counted.tally.figures()[place]


QUEUE_COARSE: tuple[Measure[Queue], ...] = (
    Measure(
        "queue_messages_ready", GAUGE, "Messages ready to be delivered to consumers", lambda q: q.length()
    ),
    Measure(
        "queue_messages_unacked",
        GAUGE,
        "Messages delivered to consumers but not yet acknowledged",
        lambda q: q.unacked,
    ),
    Measure(
        "queue_messages",
        GAUGE,
        "Sum of ready and unacknowledged messages - total queue depth",
        lambda q: q.length() + q.unacked,
    ),
)
QUEUE_CONSUMERS: tuple[Measure[Queue], ...] = (
    Measure("queue_consumers", GAUGE, "Consumers on a queue", lambda q: len(q.consumers)),
)
QUEUE_SIZES: tuple[Measure[Queue], ...] = (
    Measure("queue_messages_ready_bytes", GAUGE, "Size in bytes of ready messages", lambda q: q.body_bytes()),
)
QUEUE_PUBLISHED: tuple[Measure[Counted], ...] = (
    Measure(
        "queue_messages_published_total",
        COUNTER,
        "Total number of messages published to queues",
        lambda q: q.tally.published,
    ),
)


def _deliveries(prefix: str) -> tuple[Measure[Counted], ...]:
    """Numbers of what was delivered. Queues and channels have the same."""
    table = (
        ("get_ack", "get", "fetched with basic.get in manual acknowledgement mode"),
        ("get", "get_no_ack", "fetched with basic.get in automatic acknowledgement mode"),
        ("messages_delivered_ack", "deliver", "delivered to consumers in manual acknowledgement mode"),
        ("messages_delivered", "deliver_no_ack", "delivered to consumers in automatic acknowledgement mode"),
        ("messages_redelivered", "redeliver", "redelivered to consumers"),
        ("messages_acked", "ack", "acknowledged by consumers"),
    )
    counted: list[Measure[Counted]] = [
        Measure(f"{prefix}_{name}_total", COUNTER, f"Total number of messages {text}", _figure(figure))
        for name, figure, text in table
    ]
    empty = "Total number of times basic.get operations fetched no message"
    return (*counted, Measure(f"{prefix}_get_empty_total", COUNTER, empty, lambda c: c.tally.got_empty))


QUEUE_DELIVERIES = _deliveries("queue")
CHANNEL_DELIVERIES = _deliveries("channel")
CHANNELS: tuple[Measure[Channel], ...] = (
    Measure("channel_consumers", GAUGE, "Consumers on a channel", lambda c: len(c.consumers)),
    Measure(
        "channel_messages_unacked",
        GAUGE,
        "Delivered but not yet acknowledged messages",
        lambda c: c.deliveries.outstanding,
    ),
    Measure("channel_messages_unconfirmed", GAUGE, "Published but not yet confirmed messages", _unconfirmed),
    Measure(
        "channel_messages_uncommitted",
        GAUGE,
        "Messages received in a transaction but not yet committed",
        lambda c: 0 if c.transaction is None else len(c.transaction.publishes),
    ),
    Measure(
        "channel_acks_uncommitted",
        GAUGE,
        "Message acknowledgements in a transaction not yet committed",
        lambda c: 0 if c.transaction is None else len(c.transaction.settled),
    ),
    Measure(
        "consumer_prefetch",
        GAUGE,
        "Limit of unacknowledged messages for each consumer",
        lambda c: c.prefetch_count,
    ),
    Measure(
        "channel_prefetch",
        GAUGE,
        "Total limit of unacknowledged messages for all consumers on a channel",
        lambda c: c.deliveries.prefetch_count,
    ),
)
CHANNEL_PUBLISHED: tuple[Measure[Counted], ...] = (
    Measure(
        "channel_messages_published_total",
        COUNTER,
        "Total number of messages published into an exchange on a channel",
        lambda c: c.tally.published,
    ),
    Measure(
        "channel_messages_confirmed_total",
        COUNTER,
        "Total number of messages published into an exchange and confirmed on the channel",
        lambda c: c.tally.confirmed,
    ),
    Measure(
        "channel_messages_unroutable_returned_total",
        COUNTER,
        "Total number of messages published as mandatory and returned to the publisher as unroutable",
        lambda c: c.tally.returned,
    ),
    Measure(
        "channel_messages_unroutable_dropped_total",
        COUNTER,
        "Total number of messages published as non-mandatory and dropped as unroutable",
        lambda c: c.tally.dropped,
    ),
)
CONNECTION_COARSE: tuple[Measure[Passed], ...] = (
    Measure(
        "connection_incoming_bytes_total",
        COUNTER,
        "Total number of bytes received on a connection",
        lambda c: c.bytes().received,
    ),
    Measure(
        "connection_outgoing_bytes_total",
        COUNTER,
        "Total number of bytes sent on a connection",
        lambda c: c.bytes().sent,
    ),
)
CONNECTION_PACKETS: tuple[Measure[Passed], ...] = (
    Measure(
        "connection_incoming_packets_total",
        COUNTER,
        "Total number of packets received on a connection",
        lambda c: c.bytes().reads,
    ),
    Measure(
        "connection_outgoing_packets_total",
        COUNTER,
        "Total number of packets sent on a connection",
        lambda c: c.bytes().writes,
    ),
)
CONNECTION_GAUGES: tuple[Measure[Connection], ...] = (
    Measure(
        "connection_pending_packets",
        GAUGE,
        "Number of packets waiting to be sent on a connection",
        lambda c: int(c.link.unsent_bytes() > 0),
    ),
    Measure("connection_channels", GAUGE, "Channels on a connection", lambda c: len(c.channels)),
)
EXCHANGES: tuple[Measure[tuple[str, Exchange]], ...] = (
    Measure(
        "exchange_messages_published_total",
        COUNTER,
        "Total number of messages published into an exchange",
        lambda e: e[1].tally.published,
    ),
    Measure(
        "exchange_messages_routed_total",
        COUNTER,
        "Total number of messages that an exchange routed to queues",
        lambda e: e[1].tally.routed,
    ),
)
EXCHANGE_NAMES: tuple[Measure[tuple[str, Exchange]], ...] = (
    Measure("exchange_name", GAUGE, "Enumerates exchanges without any additional info", lambda _e: 1),
)
EXCHANGE_BINDINGS: tuple[Measure[tuple[str, Exchange]], ...] = (
    Measure("exchange_bindings", GAUGE, "Number of bindings for an exchange", lambda e: len(e[1].bindings)),
)
VHOSTS: tuple[Measure[Vhost], ...] = (
    Measure("vhost_status", GAUGE, "Whether a given vhost is running", lambda vhost: int(not vhost.ended)),
)


def stream_lags(queues: Labelled[Queue]) -> Family:
    """How far each reader of a stream is behind: by consumer tags, and by names of offsets."""
    return Family(
        "warren_stream_reader_lag",
        "Messages that a reader of a stream has not read yet, or not acknowledged if its offset has a name",
        GAUGE,
        (
            ("", labels_text({**queues.labels(queue), "reader": reader}), lag)
            for queue in queues.objects
            for reader, lag in lags_in(queue).items()
        ),
    )


def lags_in(queue: Queue) -> dict[str, int]:
    stream = stream_of(queue)
    return {} if stream is None else stream.lags()


# --- the groups ---

Collect: TypeAlias = Callable[[Objects, str], Iterator[Family]]


def _of_queues(*measures: Measure[Queue]) -> Collect:
    return lambda objects, prefix: families_of(measures, objects.queues, prefix)


def _of_channels(*measures: Measure[Channel]) -> Collect:
    return lambda objects, prefix: families_of(measures, objects.channels, prefix)


def _of_connections(*measures: Measure[Connection]) -> Collect:
    return lambda objects, prefix: families_of(measures, objects.connections, prefix)


GROUPS: dict[str, Collect] = {
    "queue_coarse_metrics": _of_queues(*QUEUE_COARSE),
    "queue_consumer_count": _of_queues(*QUEUE_CONSUMERS),
    "queue_metrics": _of_queues(*QUEUE_CONSUMERS, *QUEUE_SIZES),
    "queue_delivery_metrics": _of_queues(*QUEUE_DELIVERIES),
    "channel_queue_exchange_metrics": _of_queues(*QUEUE_PUBLISHED),
    "channel_metrics": _of_channels(*CHANNELS),
    "channel_exchange_metrics": _of_channels(*CHANNEL_PUBLISHED),
    "channel_queue_metrics": _of_channels(*CHANNEL_DELIVERIES),
    "connection_coarse_metrics": _of_connections(*CONNECTION_COARSE),
    "connection_metrics": _of_connections(*CONNECTION_PACKETS, *CONNECTION_GAUGES),
    "exchange_metrics": lambda objects, prefix: families_of(EXCHANGES, objects.exchanges, prefix),
    "exchange_names": lambda objects, _prefix: families_of(EXCHANGE_NAMES, objects.typed_exchanges, CLUSTER),
    "exchange_bindings": lambda objects, _prefix: families_of(
        EXCHANGE_BINDINGS, objects.typed_exchanges, CLUSTER
    ),
    "vhost_status": lambda objects, _prefix: families_of(VHOSTS, objects.vhosts, CLUSTER),
}
"""By RabbitMQ's name of the family. The function takes what is asked for, and the prefix of names."""
EVERY_OBJECT = (
    "queue_coarse_metrics",
    "queue_metrics",
    "queue_delivery_metrics",
    "channel_queue_exchange_metrics",
    "channel_metrics",
    "channel_exchange_metrics",
    "channel_queue_metrics",
    "connection_coarse_metrics",
    "connection_metrics",
    "exchange_metrics",
)
"""The groups of `/metrics/per-object`: no metric is in two of them."""
