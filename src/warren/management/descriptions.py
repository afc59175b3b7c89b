"""Exchange types and mechanisms of logging in, by name, with RabbitMQ's descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warren.broker.node import Node
from warren.management.listing import Row
from warren.session.sasl import MECHANISMS

EXCHANGE_TYPES = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-delayed-message": "Delayed Message Exchange",
    "x-federation-upstream": "Federation upstream helper exchange type",
}
"""Types that other packages bring have no description."""
AUTH_MECHANISMS = {
    "PLAIN": "SASL PLAIN authentication mechanism",
    "AMQPLAIN": "QPid AMQPLAIN mechanism",
}


def exchange_types(node: Node) -> list[Row]:
    return _described(node.exchange_types, EXCHANGE_TYPES)


def auth_mechanisms() -> list[Row]:
    return _described(MECHANISMS, AUTH_MECHANISMS)


def _described(names: Iterable[str], texts: Mapping[str, str]) -> list[Row]:
    return [{"name": name, "description": texts.get(name, ""), "enabled": True} for name in names]
