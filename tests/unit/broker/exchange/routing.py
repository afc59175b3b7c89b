"""Helpers to test routers without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from warren.amqp.budget import Budget
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding
from warren.broker.exchange.exchange import Router

if TYPE_CHECKING:
    from warren.broker.exchange.exchange import Exchange
    from warren.broker.queue import Queue


class Target:
    """A destination that is only its name."""

    is_queue = True
    deleted = False

    def __init__(self, name: str) -> None:
        self.name = name


def binding(name: str, key: str = "", arguments: Table | None = None) -> Binding:
    return Binding(cast("Exchange", None), cast("Queue", Target(name)), key, arguments or {})


def bind(router: Router, name: str, key: str = "", arguments: Table | None = None) -> Binding:
    made = binding(name, key, arguments)
    router.bind(made)
    return made


def routed(router: Router, key: str = "", properties: BasicProperties | None = None) -> list[str]:
    """The names of the destinations, sorted."""
    return sorted(found.name for found in router.route(key, properties or BasicProperties(), Budget()))


def work_of(router: Router, key: str = "", properties: BasicProperties | None = None) -> int:
    """How many units of work a route charges for what was looked at."""
    budget = Budget()
    router.route(key, properties or BasicProperties(), budget)
    return -budget.left
