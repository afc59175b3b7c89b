"""Finds the queues that messages would go to by a proposed topology, with the broker's own exchanges.

A topology is JSON in the form of RabbitMQ's definitions: `exchanges`, `queues`, `bindings` and, for alternate
exchanges, `policies`. It is set up in a `Node` without sockets, files or clients, which routes messages as a
broker would. Needs no Spark: each of Spark's workers makes a node of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from warren.amqp.errors import AmqpError
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker import commands
from warren.broker.exchange.delayed import DELAY, DELIVER_AT
from warren.broker.exchange.types import exchange_types
from warren.broker.node import Limits, Node
from warren.broker.rules import ALTERNATE_EXCHANGE
from warren.pipeline.errors import PipelineError
from warren.pipeline.sink.headers import header_value

T = TypeVar("T")
Headers: TypeAlias = Mapping[str, str | None]

COPIES = "CC"
DELAYING = (DELAY, DELIVER_AT)
KINDS = ("policies", "exchanges", "queues", "bindings")


class NeverTimer:
    """A timer that never fires."""

    def cancel(self) -> None:
        pass


class StillWorld:
    """A world in which no time passes and no callback is called: routing needs neither."""

    def now(self) -> float:
        return 0.0

    def time_ms(self) -> int:
        return 0

    def call_soon(self, callback: Callable[[], None]) -> None:
        pass

    def call_later(self, seconds: float, callback: Callable[[], None]) -> NeverTimer:
        return NeverTimer()

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        raise NotImplementedError("routing takes no thread")

    def report(self, error: Exception) -> None:
        raise error


class Routes:
    """Routes messages by one topology."""

    def __init__(self, definitions: str, *, name: str) -> None:
        self.name = name
        content = _parse(definitions, name)
        self.node = Node(StillWorld(), Limits(), exchange_types(), "what-if")
        self.content = content
        for vhost in self._vhosts():
            self.node.execute(commands.AddVhost(name=vhost))
        for kind, make in (
            ("policies", self._policy),
            ("exchanges", self._exchange),
            ("queues", self._queue),
            ("bindings", self._bind),
        ):
            for number, item in enumerate(_items(content, kind, name)):
                self._execute(make, item, f"{name}: {kind}[{number}]")

    def _vhosts(self) -> list[str]:
        """The vhosts that any item names: a file of one vhost need not list it."""
        named = {"/", *(str(item.get("name")) for item in _items(self.content, "vhosts", self.name))}
        for kind in KINDS:
            named |= {_vhost(item) for item in _items(self.content, kind, self.name)}
        return sorted(named)

    def _execute(
        self,
        make: Callable[[Mapping[str, object]], commands.Command | None],
        item: Mapping[str, object],
        where: str,
    ) -> None:
        try:
            command = make(item)
            if command is not None:
                self.node.execute(command)
        except KeyError as error:
            raise PipelineError(f"{where} has no {error}") from error
        except AmqpError as error:
            raise PipelineError(f"{where}: {error}") from error

    # --- from JSON to commands ---

    def _exchange(self, item: Mapping[str, object]) -> commands.Command | None:
        name = str(item["name"])
        if not name or name.startswith("amq."):
            return None  # the broker's own are there already
        arguments = _table(item.get("arguments"))
        return commands.DeclareExchange(
            vhost=_vhost(item), name=name, type=str(item["type"]), arguments=arguments
        )

    def _queue(self, item: Mapping[str, object]) -> commands.Command:
        """Its arguments are left out: they matter for messages in the queue, and not for routing."""
        return commands.DeclareQueue(vhost=_vhost(item), name=str(item["name"]), by_broker=True)

    def _bind(self, item: Mapping[str, object]) -> commands.Command | None:
        if not item["source"]:
            return None  # every queue is bound to the default exchange
        return commands.Bind(
            vhost=_vhost(item),
            source=str(item["source"]),
            destination=str(item["destination"]),
            to_queue=item.get("destination_type", "queue") == "queue",
            routing_key=str(item.get("routing_key", "")),
            arguments=_table(item.get("arguments")),
        )

    def _policy(self, item: Mapping[str, object]) -> commands.Command | None:
        """Only alternate exchanges matter: no other key of a policy changes where messages go."""
        definition = _table(item.get("definition"))
        if ALTERNATE_EXCHANGE not in definition:
            return None
        return commands.PutPolicy(
            vhost=_vhost(item),
            name=str(item["name"]),
            pattern=str(item["pattern"]),
            definition={ALTERNATE_EXCHANGE: definition[ALTERNATE_EXCHANGE]},
            priority=int(str(item.get("priority", 0))),
            apply_to="exchanges",
        )

    # --- routing ---

    def queues(self, vhost: str) -> list[str]:
        found = self.node.vhosts.get(vhost)
        return sorted(name for name, queue in found.queues.items() if not queue.internal) if found else []

    def route(
        self,
        vhost_name: str,
        exchange_name: str,
        routing_key: str,
        headers: Headers | None = None,
        *,
        header_types: Headers | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        timestamp: int | None = None,
    ) -> list[str] | None:
        """The names of the queues that a message goes to, or None if there is no such exchange. Headers are
        as in the table of messages, the other properties as in AMQP.
        """
        vhost = self.node.vhosts.get(vhost_name)
        exchange = vhost.exchanges.get(exchange_name) if vhost else None
        if vhost is None or exchange is None:
            return None
        copies = _copies(headers, header_types)
        if not copies and not vhost.depends_on_properties(exchange):
            found = vhost.route(exchange, encode_name(routing_key))
        else:
            known = BasicProperties(
                headers=_decoded(headers, header_types),
                message_id=message_id,
                correlation_id=correlation_id,
                timestamp=timestamp,
            )
            found = vhost.walk(exchange, [routing_key, *copies], known)
        return sorted(queue.name for queue in found if not queue.internal)


def in_vhost(definitions: str, vhost: str, *, name: str) -> str:
    """The definitions, with `vhost` filled in where an item names none."""
    content = dict(_parse(definitions, name))
    for kind in KINDS:
        content[kind] = [{"vhost": vhost, **item} for item in _items(content, kind, name)]
    return json.dumps(content)


def _parse(definitions: str, name: str) -> Mapping[str, object]:
    try:
        content = json.loads(definitions)
    except ValueError as error:
        raise PipelineError(f"{name} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise PipelineError(f"{name} must be a JSON object with exchanges, queues and bindings")
    return content


def _items(content: Mapping[str, object], kind: str, name: str) -> list[Mapping[str, object]]:
    found = content.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise PipelineError(f"{name}: {kind} must be a list of objects")
    return found


def _vhost(item: Mapping[str, object]) -> str:
    return str(item.get("vhost", "/"))


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _decoded(headers: Headers | None, types: Headers | None) -> Table:
    """The headers as an AMQP table, without those that delay a message: where it goes is asked, not when."""
    kinds = types or {}
    found = (headers or {}).items()
    return {name: header_value(text, kinds.get(name)) for name, text in found if name not in DELAYING}


def _copies(headers: Headers | None, types: Headers | None) -> list[str]:
    """Further routing keys, from the header CC. Brokers remove the header BCC, so its keys are not known."""
    keys = header_value((headers or {}).get(COPIES), (types or {}).get(COPIES))
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
