"""The calls that tests make on a channel, with a socket (`AmqpChannel`) or without one (`FakeClient`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from warren.amqp import methods as m
from warren.amqp.table import Table

M = TypeVar("M", bound=m.Method)


class Caller(ABC):
    @abstractmethod
    def call(self, method: m.Method, answer: type[M]) -> M:
        """Send a method, and return its answer, which must be of the expected kind."""

    def declare_exchange(
        self, exchange: str, kind: str = "direct", *, arguments: Table | None = None, **flags: bool
    ) -> None:
        declare = m.ExchangeDeclare(exchange=exchange, type=kind, arguments=arguments or {}, **flags)
        self.call(declare, m.ExchangeDeclareOk)

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Table | None = None) -> None:
        bind = m.QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {})
        self.call(bind, m.QueueBindOk)
