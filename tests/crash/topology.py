"""Exchanges, queues and bindings: fixed ones that carry the load, and a garden that changes all the time."""

from __future__ import annotations

from tests.crash.definitions import BindingThing, Definitions, ExchangeThing, QueueThing, Thing
from tests.crash.ledger import Ledger
from tests.crash.link import Link
from tests.crash.message import Route
from warren.amqp import methods as m

UNREAD = "unread"
CONSUMED = ("default.a", "default.b", "fan.a", "fan.b", "topic.a", "topic.b")
QUEUES = [QueueThing(name) for name in (*CONSUMED, UNREAD)]

FAN = ExchangeThing("fan", "fanout")
OUTER = ExchangeThing("outer", "direct")
TOPICS = ExchangeThing("topics", "topic")
KEYS = ExchangeThing("keys", "direct")
EXCHANGES = [FAN, OUTER, TOPICS, KEYS]

BINDINGS = [
    ("fan.a", "fan", ""),
    ("fan.b", "fan", ""),
    (UNREAD, "fan", ""),
    ("topic.a", "topics", "a.*"),
    ("topic.b", "topics", "#"),
    (UNREAD, "topics", "*.*.last"),
    ("default.a", "keys", "k"),
    ("topic.a", "keys", "k"),
    ("fan.a", "keys", "k"),
]

ROUTES = [
    Route("", "default.a", ("default.a",)),
    Route("", "default.b", ("default.b",)),
    Route("fan", "ignored", ("fan.a", "fan.b", UNREAD)),
    Route("outer", "all", ("fan.a", "fan.b", UNREAD)),
    Route("topics", "a.first", ("topic.a", "topic.b")),
    Route("topics", "b.next.last", ("topic.b", UNREAD)),
    Route("topics", "b.next", ("topic.b",)),
    Route("keys", "k", ("default.a", "topic.a", "fan.a")),
]

GARDEN_QUEUES = [*(QueueThing(f"garden.{n}") for n in range(3)), QueueThing("garden.passing", durable=False)]
GARDEN_EXCHANGES = [
    ExchangeThing("garden.direct", "direct"),
    ExchangeThing("garden.topic", "topic"),
    ExchangeThing("garden.passing", "direct", durable=False),
]
GARDEN_BINDINGS = [
    BindingThing(exchange, queue, f"{queue.name}.{n}")
    for exchange in GARDEN_EXCHANGES
    for queue in GARDEN_QUEUES
    for n in range(2)
]
GARDEN: list[Thing] = [*GARDEN_QUEUES, *GARDEN_EXCHANGES, *GARDEN_BINDINGS]


def declare_queue(queue: QueueThing, *, passive: bool = False) -> m.QueueDeclare:
    return m.QueueDeclare(queue=queue.name, durable=queue.durable, passive=passive, arguments={})


def declare_exchange(exchange: ExchangeThing, *, passive: bool = False) -> m.ExchangeDeclare:
    return m.ExchangeDeclare(
        exchange=exchange.name, type=exchange.type, durable=exchange.durable, passive=passive, arguments={}
    )


async def declare_all(link: Link, ledger: Ledger, definitions: Definitions) -> None:
    """The fixed part, once: after that the broker has to keep it."""
    channel = await link.channel()
    for queue in QUEUES:
        await channel.call(declare_queue(queue), m.QueueDeclareOk)
        definitions.declared(queue)
        ledger.add_queue(queue.name)
    for exchange in EXCHANGES:
        await channel.call(declare_exchange(exchange), m.ExchangeDeclareOk)
        definitions.declared(exchange)
    for name, source, key in BINDINGS:
        bind = m.QueueBind(queue=name, exchange=source, routing_key=key, arguments={})
        await channel.call(bind, m.QueueBindOk)
    chain = m.ExchangeBind(destination=FAN.name, source=OUTER.name, routing_key="all", arguments={})
    await channel.call(chain, m.ExchangeBindOk)
    for queue in GARDEN_QUEUES:
        if queue.durable:
            ledger.add_queue(queue.name)
    for thing in GARDEN:
        definitions.absent(thing)
