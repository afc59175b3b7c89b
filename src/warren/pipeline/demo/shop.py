"""The shop: its exchanges and queues, and the messages that it publishes.

    shop (topic) ── order.# ─────────→ shop.history      a stream: every message of the shop
                 ── order.created.* ─→ shop.payments     a worker takes the money; some cards are refused
                 ── order.paid.* ────→ shop.shipping     a courier, too slow at rush hour: parcels expire
                 ── order.*.north ───→ shop.mail         nobody reads it, and it keeps the last few only
    shop.dead (topic) ───────────────→ shop.dead-letters messages that died in one of these queues
                 ── order.*.test ────→ shop.retry        kept for a moment, then dead-lettered to shop.again
    shop.again (fanout) ─────────────→ shop.payments     to be tried once more: a circle

Orders of the region `test` are the mistake to be found in the reports: somebody forgot to turn them off, and
they fail each time they are tried.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from warren.amqp.methods import (
    BasicPublish,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.client.connection import ClientConnection
from warren.client.dialogue import Dialogue, ask
from warren.client.uri import Uri
from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import PRODUCT, ConfirmingPublisher, OutgoingMessage, Unpublished

EXCHANGE, DEAD, AGAIN = "shop", "shop.dead", "shop.again"
EXCHANGES = {EXCHANGE: "topic", DEAD: "topic", AGAIN: "fanout"}
HISTORY, PAYMENTS, SHIPPING, MAIL = "shop.history", "shop.payments", "shop.shipping", "shop.mail"
DEAD_LETTERS, RETRY = "shop.dead-letters", "shop.retry"
REGIONS = ("north", "south", "east", "west")
TEST = "test"
WARES = ("lamp", "kettle", "chair", "carpet", "clock", "mirror", "bowl")
RATE = 800
"""Orders a second, on average."""

RETRY_MS, SHIPPING_TTL_MS, MAIL_LENGTH = 250, 1500, 500
TICK_SECONDS = 0.02
TIME_HEADER = "timestamp_in_ms"
TEST_SHARE, SHARE_PAID, SHARE_RETURNED = 0.001, 0.9, 0.05
OUTBOX_MS_MAX = 400

QUEUES: dict[str, Table] = {
    HISTORY: {"x-queue-type": "stream"},
    PAYMENTS: {"x-dead-letter-exchange": DEAD},
    SHIPPING: {"x-dead-letter-exchange": DEAD, "x-message-ttl": SHIPPING_TTL_MS},
    MAIL: {"x-dead-letter-exchange": DEAD, "x-max-length": MAIL_LENGTH},
    DEAD_LETTERS: {},
    RETRY: {"x-dead-letter-exchange": AGAIN, "x-message-ttl": RETRY_MS},
}
BINDINGS = [
    (EXCHANGE, HISTORY, "order.#"),
    (EXCHANGE, PAYMENTS, "order.created.*"),
    (EXCHANGE, SHIPPING, "order.paid.*"),
    (EXCHANGE, MAIL, "order.*.north"),
    (DEAD, RETRY, f"order.*.{TEST}"),
    (AGAIN, PAYMENTS, ""),
    *((DEAD, DEAD_LETTERS, f"order.*.{region}") for region in REGIONS),
]


@dataclass
class Sales:
    """How much the shop published."""

    orders: int = 0
    events: int = 0
    test_orders: int = 0


def set_up(uri: Uri) -> None:
    """Declare the exchanges, queues and bindings."""
    with ClientConnection(uri, product=PRODUCT) as connection:
        connection.talk(_declare())


def _declare() -> Dialogue[None]:
    for exchange, kind in EXCHANGES.items():
        declare = ExchangeDeclare(exchange=exchange, type=kind, durable=True, arguments={})
        yield from ask(declare, ExchangeDeclareOk)
    for queue, arguments in QUEUES.items():
        yield from ask(QueueDeclare(queue=queue, durable=True, arguments=arguments), QueueDeclareOk)
    for exchange, queue, key in BINDINGS:
        bind: Method = QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments={})
        yield from ask(bind, QueueBindOk)


def open_shop(uri: Uri, *, seconds: float, seed: int = 1) -> Sales:
    """Publish for this many seconds, most in the middle and little at both ends: a day in a few seconds."""
    sales, chance = Sales(), random.Random(seed)  # noqa: S311 - an imaginary shop
    started_s = time.monotonic()
    with ConfirmingPublisher(uri, on_failure=_all_are_routed) as publisher:
        while (elapsed_s := time.monotonic() - started_s) < seconds:
            due = RATE * seconds * _share_of_day(elapsed_s / seconds)
            while sales.orders < due:
                for message in _events(sales, chance):
                    publisher.publish(message)
            time.sleep(TICK_SECONDS)
    return sales


def _share_of_day(part: float) -> float:
    """The share of the day's orders that have come when this part of the day (0 to 1) is over."""
    return part - 0.7 * math.sin(2 * math.pi * part) / (2 * math.pi)


def _all_are_routed(failure: Unpublished) -> None:
    raise PipelineError(f"the demo's broker did not take message '{failure.message.message_id}'")


def _events(sales: Sales, chance: random.Random) -> Iterator[OutgoingMessage]:
    """The messages of one order: created, and perhaps paid and returned."""
    sales.orders += 1
    region = TEST if chance.random() < TEST_SHARE else chance.choices(REGIONS, weights=(4, 3, 2, 1))[0]
    sales.test_orders += region == TEST
    order: dict[str, object] = {
        "order": sales.orders,
        "customer": chance.randrange(10_000),
        "items": chance.choices(WARES, k=chance.randrange(1, 6)),
        "total": round(chance.lognormvariate(3.5, 0.7), 2),
    }
    kinds = ["created"]
    if region != TEST and chance.random() < SHARE_PAID:
        kinds += ["paid", "returned"] if chance.random() < SHARE_RETURNED else ["paid"]
    for kind in kinds:
        sales.events += 1
        yield _message(f"order.{kind}.{region}", f"{sales.orders}-{kind}", order, chance)


def _message(key: str, message_id: str, order: dict[str, object], chance: random.Random) -> OutgoingMessage:
    """Tills send their messages now and then, so each is a moment old when it arrives."""
    age_ms = int(min(chance.expovariate(1 / 40), OUTBOX_MS_MAX))
    properties = BasicProperties(
        content_type="application/json",
        headers={TIME_HEADER: int(time.time() * 1000) - age_ms},
        delivery_mode=PERSISTENT,
        message_id=message_id,
        app_id="till",
    )
    method = BasicPublish(exchange=EXCHANGE, routing_key=key, mandatory=True)
    body = json.dumps(order).encode()
    return OutgoingMessage(method.encode(), properties.encode(), body, EXCHANGE, key, message_id)
