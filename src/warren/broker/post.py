"""Messages that the broker itself publishes: dead letters, and delayed ones that are due.

Nobody awaits a confirm for them. They must not be lost all the same, so whoever publishes one keeps what it
was made of until the message is safe in all its queues. A queue that another node leads gets it by post: a
`Postbox` takes letters for one such queue, in order, and says as a `Safety` when they are safe there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from warren.broker.message import Message
from warren.broker.outcome import AFTER_NEXT_ROUND, ON_ITS_WAY, REFUSED
from warren.broker.safety import Safety

FULL_MS = 500  # what should wait in its queue, since the post is full, is looked at again after so long


class Postbox(Safety, Protocol):
    """Takes letters for one queue elsewhere. Each letter is a round of its own, which is over when the letter
    and all before it are safe, or were refused, where the queue is.
    """

    def put(self, message: Message) -> None: ...

    def close(self) -> None:
        """The queue is here now, or nowhere: forget all letters, and tell those who wait that it has
        ended.
        """


class Post(Protocol):
    """A node's way to the queues that other nodes lead."""

    @property
    def is_full(self) -> bool:
        """Whether so many letters wait that messages should stay in their queues, if they can."""

    def box_for(self, vhost: str, queue: str) -> Postbox | None:
        """A new box; None if nobody knows of such a queue."""


class Target(Protocol):
    """A queue, as whoever publishes to it knows it."""

    safety: Safety | None

    def publish(self, message: Message) -> int: ...
    def stands(self) -> Target | None: ...


class Sent(NamedTuple):
    """A message that the broker itself has published."""

    message: Message
    places: dict[Safety, list[Target]]  # what says when it is safe, and in which of its queues
    was_refused: bool  # by one of its queues at least


def publish_to(targets: Iterable[Target], message: Message) -> Sent:
    """Publish a message that no client awaits a confirm for."""
    places: dict[Safety, list[Target]] = {}
    was_refused = False
    for known in targets:
        target = known.stands()  # its leader may have changed since it was found
        if target is None:
            continue
        outcome = target.publish(message)
        if outcome in {ON_ITS_WAY, AFTER_NEXT_ROUND}:
            assert target.safety is not None, "a queue with a log has a safety"
            places.setdefault(target.safety, []).append(target)
        elif outcome == REFUSED:
            was_refused = True
    return Sent(message, places, was_refused)
