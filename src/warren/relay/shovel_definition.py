"""What a shovel is to do, as RabbitMQ's parameters of the component `shovel` say it.

{"src-uri": "amqp://", "src-queue": "orders", "dest-uri": ["amqp://there", "amqp://there-too"],
 "dest-queue": "orders", "ack-mode": "on-confirm", "src-prefetch-count": 1000}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.parameters import Json
from warren.client.uri import without_password
from warren.relay.definition_reader import PREFETCH_DEFAULT, RECONNECT_SECONDS_DEFAULT, DefinitionReader
from warren.relay.ends import End
from warren.relay.pump import ACK_MODES

COMPONENT = "shovel"
NEVER, QUEUE_LENGTH = "never", "queue-length"
OLD_NAMES = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}
"""Names of earlier versions of RabbitMQ, which it still takes."""

PROTOCOL, PROTOCOLS = "amqp091", ("src-protocol", "dest-protocol")
PROPERTIES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
NUMBERS = {"delivery_mode", "priority", "timestamp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShovelDefinition:
    source: tuple[End, ...]  # tried in turn
    destination: tuple[End, ...]  # tried in turn
    source_queue: str = ""  # exactly one of this and the next is given
    source_exchange: str = ""
    source_key: str = ""  # with which a queue of the shovel's own is bound to that exchange
    source_queue_arguments: Table = field(default_factory=dict)
    source_predeclared: bool = False  # whether the shovel waits for the queue, and does not declare it
    consumer_arguments: Table = field(default_factory=dict)  # such as x-stream-offset
    destination_queue: str = ""  # at most one of this and the next is given
    destination_exchange: str | None = None  # None: that of each message
    destination_key: str | None = None  # None: that of each message
    destination_queue_arguments: Table = field(default_factory=dict)
    destination_predeclared: bool = False  # the same for this queue
    properties: Mapping[str, object] = field(default_factory=dict)  # to be set in each message
    add_forward_headers: bool = False
    add_timestamp_header: bool = False
    ack_mode: str = ACK_MODES[0]
    prefetch_count: int = PREFETCH_DEFAULT
    delete_after: int | str = NEVER  # a number of messages, `queue-length`, or `never`
    reconnect_seconds: float = RECONNECT_SECONDS_DEFAULT


class NotSpoken(PreconditionFailed):
    """The shovel speaks a protocol that we do not, such as AMQP 1.0. In RabbitMQ its definition is right."""


def read_shovel(name: str, value: Json) -> ShovelDefinition:
    """406 if the definition makes no sense, or is of a shovel that cannot run here (`NotSpoken`)."""
    reader = DefinitionReader(f"shovel '{name}'", value, OLD_NAMES)
    for key in PROTOCOLS:
        protocol = reader.text(key) or PROTOCOL
        if protocol != PROTOCOL:
            raise NotSpoken(f"shovel '{name}': {key} is {shown_protocol(protocol)}, which is not spoken here")
    source_queue, source_exchange = reader.text("src-queue"), reader.text("src-exchange")
    if bool(source_queue) == bool(source_exchange):
        raise reader.wrong("src-queue", "or src-exchange has to be given, and not both")
    queue, exchange = reader.text("dest-queue"), reader.text("dest-exchange")
    if queue and exchange is not None:
        raise reader.wrong("dest-queue", "and dest-exchange cannot be given both")
    definition = ShovelDefinition(
        source=reader.ends("src-uri"),
        destination=reader.ends("dest-uri"),
        source_queue=source_queue or "",
        source_exchange=source_exchange or "",
        source_key=reader.text("src-exchange-key") or "",
        source_queue_arguments=reader.table("src-queue-args"),
        source_predeclared=reader.flag("src-predeclared"),
        consumer_arguments=reader.table("src-consumer-args"),
        destination_queue=queue or "",
        destination_exchange=exchange,
        destination_key=reader.text("dest-exchange-key"),
        destination_queue_arguments=reader.table("dest-queue-args"),
        destination_predeclared=reader.flag("dest-predeclared"),
        properties=_properties(reader),
        add_forward_headers=reader.flag("dest-add-forward-headers"),
        add_timestamp_header=reader.flag("dest-add-timestamp-header"),
        ack_mode=reader.one_of("ack-mode", ACK_MODES),
        prefetch_count=reader.prefetch_count("src-prefetch-count"),
        delete_after=_delete_after(reader),
        reconnect_seconds=reader.reconnect_seconds(),
    )
    reader.expect_nothing()
    if definition.delete_after != NEVER and definition.ack_mode == "no-ack":
        raise reader.wrong("src-delete-after", "cannot be used with ack-mode no-ack")
    return definition


def shown_protocol(protocol: str) -> str:
    return "AMQP 1.0" if protocol == "amqp10" else f"'{without_password(protocol)}'"


def _delete_after(reader: DefinitionReader) -> int | str:
    value = reader.fields.pop("src-delete-after", NEVER)
    if value in {NEVER, QUEUE_LENGTH} or (
        isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ):
        return value
    raise reader.wrong("src-delete-after", "should be never, queue-length, or a number of messages")


def _properties(reader: DefinitionReader) -> Mapping[str, object]:
    given = dict(reader.table("dest-publish-properties"))
    for name, value in given.items():
        wanted = int if name in NUMBERS else str
        if name not in PROPERTIES or not isinstance(value, wanted) or isinstance(value, bool):
            raise reader.wrong("dest-publish-properties", f"cannot set {name} to {value!r}")
    try:
        BasicProperties(**given).encode()  # type: ignore[arg-type]  # each was looked at
    except (ValueError, OverflowError) as error:
        raise reader.wrong("dest-publish-properties", f"cannot be sent: {error}") from None
    return given
