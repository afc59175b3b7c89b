"""A test's queue, as an object of its concrete class."""

from __future__ import annotations

from warren.broker.classic_queue import ClassicQueue
from warren.broker.queue import Queue


def classic(queue: Queue) -> ClassicQueue:
    assert isinstance(queue, ClassicQueue)
    return queue
