"""What the parts of a session need of each other, as protocols, so that their modules need not import each
other. `Connection` is a `Host`, `Channel` a `WorkingChannel`; their attributes are explained there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from warren.amqp.budget import Budget
from warren.amqp.errors import AmqpError
from warren.amqp.methods import Method
from warren.amqp.table import Table
from warren.amqp.writer import Output
from warren.broker.access import Access
from warren.broker.client import ClientId
from warren.broker.deduplication import Seen
from warren.broker.entry import Entry
from warren.broker.login import Identity
from warren.broker.message import Message
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.session.confirms import Confirms
from warren.session.consumer import ChannelConsumer
from warren.session.deliveries import Deliveries
from warren.session.peer import Peer
from warren.session.state import State


class Host(Protocol):
    """What the channels, the handshake, the liveness and the meter need of their connection."""

    id: ClientId
    node: Node
    peer: Peer
    name: str
    mechanism: str
    state: State
    output: Output
    budget: Budget
    client_properties: Table
    user_name: str
    identity: Identity
    vhost_name: str
    vhost: Vhost
    access: Access
    channel_max: int
    frame_max: int
    channels_that_published: list[Any]
    blocking: bool
    blocked: bool
    suspended: bool
    closing: bool
    not_reading_because: set[str]
    not_delivering_because: set[str]
    received_bytes: int
    read_bytes_max: int
    close_reason: str
    handling: tuple[int, int] | None
    liveness: Any
    meter: Any

    def become(self, state: State) -> None: ...
    def send(self, method: Method) -> None: ...
    def has_capability(self, name: str) -> bool: ...
    def opened(self, vhost: Vhost, access: Access) -> None: ...
    def renew(self, identity: Identity) -> None: ...
    @property
    def channels(self) -> Mapping[int, Any]: ...
    def open_channels(self) -> list[Any]: ...
    def published_total(self) -> int: ...
    def delivered_total(self) -> int: ...
    def go_on(self, channel: Any) -> int: ...
    def resume(self) -> int: ...
    def halt(self, reason: str) -> None: ...
    def stop_reading(self, reason: str) -> None: ...
    def start_reading(self, reason: str) -> None: ...
    def stop_delivering(self, reason: str) -> None: ...
    def start_delivering(self, reason: str) -> None: ...
    def on_error(self, number: int, error: Exception) -> int: ...
    def fail(self, error: AmqpError, method_id: tuple[int, int]) -> None: ...
    def drop(self, reason: str) -> None: ...
    def give_up(self, reason: str) -> None: ...


class WorkingChannel(Protocol):
    """What a transaction and chores need of their channel."""

    connection: Host
    confirms: Confirms
    deliveries: Deliveries
    consumers: dict[str, ChannelConsumer]
    transaction: Any
    chores: Any

    def enqueuing(
        self, message: Message, queues: list[Queue], seen: Seen | None, mandatory: bool
    ) -> Iterator[int]: ...
    def release(self, entry: Entry) -> None: ...
    def give_back(self, entry: Entry, *, requeue: bool, settled: bool = True) -> None: ...
    def deliver_again(self, entry: Entry, consumer: ChannelConsumer) -> None: ...
    def room_changed(self) -> None: ...
    def wake_consumers(self) -> None: ...
    def leader_changed(self) -> None: ...
    def wait(self) -> int: ...
    def stop_waiting(self) -> None: ...
    def listen_again(self) -> None: ...
