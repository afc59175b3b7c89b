"""The broker's events as messages in the stream `warren.events`, so that they can be consumed and analysed.

Each event is one persistent message. Its routing key and its header `event` are the name of the event in
words, `queue.created` for QueueCreated; its body is JSON with the event's fields. Events about single
messages are sampled, one in so many of each kind, and carry the message's key and size but never its body.

An event is written in the turn after the one in which it happened, never in the middle of another change.
Events that the stream itself causes, such as deliveries to its consumers, are not written: each would cause
the next one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields

from warren.amqp.errors import AmqpError
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker import events
from warren.broker.commands import DeclareQueue
from warren.broker.events import Event
from warren.broker.message import Message
from warren.broker.node import Node
from warren.server.config_error import ConfigError

VHOST = "/"
NAME = "warren.events"
STREAM_ARGUMENTS: Table = {"x-queue-type": "stream", "x-max-length-bytes": 1024 * 1024 * 1024}
WAITING_MAX = 10_000
LOST = "events.lost"
WORD = re.compile("[A-Z][a-z]*")
HEADERS = ("vhost", "queue")  # fields that are copied into the headers as well

KINDS = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
OF_MESSAGES = [kind for kind in KINDS if "message" in {field.name for field in fields(kind)}]
OF_OTHERS = [kind for kind in KINDS if kind not in OF_MESSAGES and kind is not Event]


class EventStream:
    """Subscribes to the node's events, and writes them to the stream."""

    def __init__(self, node: Node, sample: int) -> None:
        self.node = node
        self.sample = sample  # of the events about single messages, one in so many is written; 0: none
        self.waiting: list[tuple[str, int, dict[str, object]]] = []  # to be written: name, time, fields
        self.lost = 0  # events dropped since the last `events.lost`, which tells how many they were
        self.stopped = False
        self.unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        if VHOST not in self.node.vhosts:
            raise ConfigError(f"events_stream: there is no vhost '{VHOST}' for the stream '{NAME}'")
        if NAME not in self.node.vhosts[VHOST].queues:  # else the stream stays as a user has declared it
            self._declare()
        for kind in OF_OTHERS:
            self._subscribe(kind)
        if self.sample:
            for kind in OF_MESSAGES:
                self._subscribe(kind, self.sample)

    def _declare(self) -> None:
        try:
            self.node.execute(
                DeclareQueue(vhost=VHOST, name=NAME, durable=True, arguments=dict(STREAM_ARGUMENTS))
            )
        except AmqpError as error:
            raise ConfigError(f"events_stream: cannot declare '{NAME}': {error.text}") from error

    def stop(self) -> None:
        for unsubscribe in self.unsubscribe:
            unsubscribe()
        self.stopped = True
        self._write()

    def _subscribe(self, kind: type[Event], one_in: int = 1) -> None:
        self.unsubscribe.append(self.node.events.subscribe(kind, self._note, one_in))

    def _note(self, event: Event) -> None:
        """Copy the fields that are written now: the rest of the event may be large, or change."""
        if is_of_stream(event):
            return
        if len(self.waiting) >= WAITING_MAX:
            self.lost += 1
            return
        if not self.waiting:
            self.node.world.call_soon(self._write_later)
        self.waiting.append((name_of(type(event)), self.node.clock.refresh(), describe(event)))

    def _write_later(self) -> None:
        if not self.stopped:
            self._write()

    def _write(self) -> None:
        waiting, self.waiting = self.waiting, []
        vhost = self.node.vhosts.get(VHOST)
        queue = None if vhost is None else vhost.queues.get(NAME)
        if queue is None or self.node.store.safety.behind:  # the stream was deleted, or the disk is behind
            self.lost += len(waiting)
            return
        if self.lost:
            waiting.append((LOST, self.node.clock.refresh(), {"count": self.lost}))
            self.lost = 0
        for name, time_ms, described in waiting:
            queue.publish(message_of(name, time_ms, described))
        self.node.end_turn()


def name_of(kind: type[Event]) -> str:
    return ".".join(WORD.findall(kind.__name__)).lower()


def is_of_stream(event: Event) -> bool:
    """Whether the event is about a message in this stream itself."""
    if isinstance(event, events.MessagePublished):
        return event.vhost == VHOST and event.queues == (NAME,)
    return (
        type(event) in OF_MESSAGES
        and getattr(event, "vhost", None) == VHOST
        and getattr(event, "queue", None) == NAME
    )


def describe(event: Event) -> dict[str, object]:
    """The event's fields for JSON. For an event about a message, `exchange` is the exchange that the message
    was published to; a field `exchange` of the event itself is then called `to_exchange`.
    """
    described: dict[str, object] = {field.name: getattr(event, field.name) for field in fields(event)}
    message, error = described.pop("message", None), described.get("error")
    if isinstance(error, Exception):
        described["error"] = repr(error)
    if isinstance(message, Message):
        if "exchange" in described:
            described["to_exchange"] = described["exchange"]
        described |= describe_message(message)
    return described


def describe_message(message: Message) -> dict[str, object]:
    try:
        message_id = message.decode_properties().message_id
    except AmqpError:  # the broker does not check the properties that clients send
        message_id = None
    return {
        "exchange": message.exchange_name,
        "routing_key": message.key,
        "message_id": message_id,
        "body_bytes": len(message.body),
    }


def message_of(name: str, time_ms: int, described: dict[str, object]) -> Message:
    headers: Table = {"event": name}
    headers |= {key: str(described[key]) for key in HEADERS if described.get(key) is not None}
    properties = BasicProperties(
        content_type="application/json",
        headers=headers,
        delivery_mode=PERSISTENT,
        timestamp=time_ms // 1000,
    )
    body = json.dumps(described, ensure_ascii=False).encode("utf-8", "replace")
    return Message(
        encode_name(""), encode_name(name), properties.encode(), body, persistent=True, time_ms=time_ms
    )
