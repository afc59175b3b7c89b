"""What a shovel is to do, as RabbitMQ's parameters of the component `shovel` say it.

{"src-uri": "amqp://", "src-queue": "orders", "dest-uri": ["amqp://there", "amqp://there-too"],
 "dest-queue": "orders", "ack-mode": "on-confirm", "src-prefetch-count": 1000}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.parameters import Json
from warren.client.uri import without_password
from warren.relay.ends import End, read_end

COMPONENT = "shovel"
ACK_MODES = ("on-confirm", "on-publish", "no-ack")
NEVER, QUEUE_LENGTH = "never", "queue-length"
PREFETCH_DEFAULT, PREFETCH_MAX = 1_000, 65_535
RECONNECT_SECONDS_DEFAULT, RECONNECT_SECONDS_MAX = 5.0, 86_400.0
URIS_MAX = 100
OLD_NAMES = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}
"""Names of earlier versions of RabbitMQ, which it still takes."""

PROTOCOL = "amqp091"
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
    consumer_arguments: Table = field(default_factory=dict)  # such as x-stream-offset
    destination_queue: str = ""  # at most one of this and the next is given
    destination_exchange: str | None = None  # None: that of each message
    destination_key: str | None = None  # None: that of each message
    destination_queue_arguments: Table = field(default_factory=dict)
    properties: Mapping[str, object] = field(default_factory=dict)  # to be set in each message
    add_forward_headers: bool = False
    add_timestamp_header: bool = False
    ack_mode: str = ACK_MODES[0]
    prefetch_count: int = PREFETCH_DEFAULT
    delete_after: int | str = NEVER  # a number of messages, `queue-length`, or `never`
    reconnect_seconds: float = RECONNECT_SECONDS_DEFAULT


class Reader:
    """Takes fields out of a definition. Whatever makes no sense is 406, and so is what is left at the end."""

    def __init__(self, name: str, value: Json) -> None:
        if not isinstance(value, dict):
            raise PreconditionFailed(f"shovel '{name}': expected an object")
        self.name = name
        self.fields: dict[str, Json] = {}
        for key, given in value.items():
            self.fields[OLD_NAMES.get(key, key)] = given

    def wrong(self, key: str, what: str) -> PreconditionFailed:
        return PreconditionFailed(f"shovel '{self.name}': {without_password(key)} {what}")

    def text(self, key: str) -> str | None:
        value = self.fields.pop(key, None)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "should be a text")
        return value

    def one_of(self, key: str, values: tuple[str, ...]) -> str:
        value = self.text(key)
        if value is not None and value not in values:
            raise self.wrong(key, f"should be one of {', '.join(values)}")
        return values[0] if value is None else value

    def flag(self, key: str) -> bool:
        value = self.fields.pop(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "should be true or false")
        return value

    def number(self, key: str, default: float, most: float) -> float:
        value = self.fields.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise self.wrong(key, f"should be a number from 0 to {most:g}")
        return value

    def table(self, key: str) -> Table:
        value = self.fields.pop(key, None)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "should be an object")
        return cast("Table", value or {})

    def ends(self, key: str, vhost: str) -> tuple[End, ...]:
        value = self.fields.pop(key, None)
        texts = value if isinstance(value, list) else [value]
        if not texts or len(texts) > URIS_MAX or not all(isinstance(text, str) for text in texts):
            raise self.wrong(key, "should be an AMQP URI, or a list of some")
        try:
            return tuple(read_end(cast("str", text), vhost) for text in texts)
        except ValueError as error:
            raise self.wrong(key, f"is wrong: {error}") from None

    def expect_nothing(self) -> None:
        for key in self.fields:
            raise self.wrong(key, "is not known")


def read_shovel(vhost: str, name: str, value: Json) -> ShovelDefinition:
    """406 if the definition makes no sense."""
    reader = Reader(name, value)
    for key in ("src-protocol", "dest-protocol"):
        reader.one_of(key, (PROTOCOL,))
    source_queue, source_exchange = reader.text("src-queue"), reader.text("src-exchange")
    if bool(source_queue) == bool(source_exchange):
        raise reader.wrong("src-queue", "or src-exchange has to be given, and not both")
    queue, exchange = reader.text("dest-queue"), reader.text("dest-exchange")
    if queue and exchange is not None:
        raise reader.wrong("dest-queue", "and dest-exchange cannot be given both")
    definition = ShovelDefinition(
        source=reader.ends("src-uri", vhost),
        destination=reader.ends("dest-uri", vhost),
        source_queue=source_queue or "",
        source_exchange=source_exchange or "",
        source_key=reader.text("src-exchange-key") or "",
        source_queue_arguments=reader.table("src-queue-args"),
        consumer_arguments=reader.table("src-consumer-args"),
        destination_queue=queue or "",
        destination_exchange=exchange,
        destination_key=reader.text("dest-exchange-key"),
        destination_queue_arguments=reader.table("dest-queue-args"),
        properties=_properties(reader),
        add_forward_headers=reader.flag("dest-add-forward-headers"),
        add_timestamp_header=reader.flag("dest-add-timestamp-header"),
        ack_mode=reader.one_of("ack-mode", ACK_MODES),
        prefetch_count=int(reader.number("src-prefetch-count", PREFETCH_DEFAULT, PREFETCH_MAX)),
        delete_after=_delete_after(reader),
        reconnect_seconds=reader.number("reconnect-delay", RECONNECT_SECONDS_DEFAULT, RECONNECT_SECONDS_MAX),
    )
    reader.expect_nothing()
    if definition.delete_after != NEVER and definition.ack_mode == "no-ack":
        raise reader.wrong("src-delete-after", "cannot be used with ack-mode no-ack")
    return definition


def _delete_after(reader: Reader) -> int | str:
    value = reader.fields.pop("src-delete-after", NEVER)
    if value in {NEVER, QUEUE_LENGTH} or (
        isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ):
        return value
    raise reader.wrong("src-delete-after", "should be never, queue-length, or a number of messages")


def _properties(reader: Reader) -> Mapping[str, object]:
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
