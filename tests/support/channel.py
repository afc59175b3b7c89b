"""One channel of an `AmqpClient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tests.support.caller import Caller
from tests.support.errors import UnexpectedError
from tests.support.frames import Content
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table

if TYPE_CHECKING:
    from tests.support.amqp import AmqpClient

M = TypeVar("M", bound=m.Method)


class AmqpChannel(Caller):
    """One channel of a connection, with the calls that tests make most."""

    def __init__(self, client: AmqpClient, number: int) -> None:
        self.client = client
        self.number = number

    def send(self, method: m.Method) -> None:
        self.client.send_method(self.number, method)

    def expect(self, kind: type[M]) -> M:
        return self.client.expect(self.number, kind)

    def expect_content(self, kind: type[M]) -> Content[M]:
        return self.client.expect_content(self.number, kind)

    def call(self, method: m.Method, answer: type[M]) -> M:
        self.send(method)
        return self.expect(answer)

    def close(self) -> None:
        self.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)

    def expect_close(self, code: int) -> m.ChannelClose:
        """Expect that the broker closes the channel, and answer it. The number can be opened again."""
        close = self.expect(m.ChannelClose)
        if close.reply_code != code:
            raise UnexpectedError(f"waited for {code}, but got {close}")
        self.send(m.ChannelCloseOk())
        return close

    def declare(
        self, queue: str = "", *, exclusive: bool = True, arguments: Table | None = None, **flags: bool
    ) -> m.QueueDeclareOk:
        """Declares a queue, exclusive unless told otherwise."""
        declare = m.QueueDeclare(queue=queue, exclusive=exclusive, arguments=arguments or {}, **flags)
        return self.call(declare, m.QueueDeclareOk)

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes = b"",
        properties: BasicProperties | None = None,
        **flags: bool,
    ) -> None:
        self.client.publish(self.number, exchange, routing_key, body, properties, **flags)

    def consume(self, queue: str, tag: str = "", *, arguments: Table | None = None, **flags: bool) -> str:
        """Starts a consumer and returns its tag."""
        consume = m.BasicConsume(queue=queue, consumer_tag=tag, arguments=arguments or {}, **flags)
        return self.call(consume, m.BasicConsumeOk).consumer_tag

    def expect_delivery(self) -> Content[m.BasicDeliver]:
        return self.expect_content(m.BasicDeliver)

    def try_get(self, queue: str, *, no_ack: bool = True) -> Content[m.BasicGetOk] | None:
        answer = self.call(m.BasicGet(queue=queue, no_ack=no_ack), m.Method)
        if isinstance(answer, m.BasicGetEmpty):
            return None
        if not isinstance(answer, m.BasicGetOk):
            raise UnexpectedError(f"waited for basic.get-ok, but got {answer}")
        return Content(answer, *self.client.read_message(self.number))

    def get(self, queue: str, *, no_ack: bool = True) -> Content[m.BasicGetOk]:
        got = self.try_get(queue, no_ack=no_ack)
        if got is None:
            raise UnexpectedError(f"waited for a message in {queue}, but there was none")
        return got

    def drain(self, queue: str) -> list[bytes]:
        """Takes all ready messages of the queue, those that this channel published before included."""
        return [got.body for got in iter(lambda: self.try_get(queue), None)]
