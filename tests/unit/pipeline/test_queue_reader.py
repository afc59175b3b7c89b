"""How much a consuming query with availableNow takes when deliveries arrive at awkward moments."""

from __future__ import annotations

from collections import deque
from typing import cast

from pyspark.sql.streaming.datasource import ReadAllAvailable

from warren.broker.message import Message
from warren.pipeline.consumer import ConsumingClient, Delivery
from warren.pipeline.source.consuming import QueueReader
from warren.pipeline.source.options import parse_consume_options


class Deliveries:
    """Stands in for ConsumingClient: `held` messages, `gathered` ones that arrive when it gathers, and ones
    that arrive `with_answer` when it asks how many are ready.
    """

    def __init__(self, *, held: int = 0, gathered: int = 0, with_answer: int = 0) -> None:
        self.held: deque[Delivery] = deque()
        self._gathered, self._with_answer = gathered, with_answer
        self._arrive(held)

    def _arrive(self, count: int) -> None:
        for _ in range(count):
            tag = len(self.held) + 1
            self.held.append(Delivery("q", tag, Message(b"\0", b"\1q", b"", b"", True), 0))

    def gather(self, wait_s: float) -> None:
        self._arrive(self._gathered)
        self._gathered = 0

    def ready(self) -> int:
        """The queue's last messages are delivered just before the answer, which is 0."""
        self._arrive(self._with_answer)
        self._with_answer = 0
        return 0


def taken(deliveries: Deliveries, *, left: int) -> int:
    options = {"consume": "true", "amqp": "amqp://127.0.0.1", "subscribe": "q"}
    reader = QueueReader(parse_consume_options(options))
    reader.consumer = cast("ConsumingClient", deliveries)
    reader.left = left
    return reader.latestOffset({"consumed": 0}, ReadAllAvailable())["consumed"]


def test_batch_is_more_than_what_came_in_while_the_last_one_was_acked() -> None:
    assert taken(Deliveries(held=64, gathered=900), left=2000) == 964


def test_what_is_delivered_right_before_the_answer_that_none_are_ready_is_taken() -> None:
    assert taken(Deliveries(with_answer=7), left=7) == 7


def test_query_ends_when_nothing_is_delivered_nor_ready() -> None:
    assert taken(Deliveries(), left=7) == 0
