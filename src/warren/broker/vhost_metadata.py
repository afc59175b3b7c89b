"""What operators say about a vhost: a description, tags, and the type of its queues."""

from __future__ import annotations

from dataclasses import dataclass

from warren.amqp.errors import PreconditionFailed
from warren.broker.rules import QUEUE_TYPES


@dataclass(frozen=True)
class VhostMetadata:
    description: str = ""
    tags: frozenset[str] = frozenset()
    default_queue_type: str | None = None
    """The type of queues that are declared without one; None for classic queues."""

    def check(self) -> None:
        """406 if there is no such type."""
        kind = self.default_queue_type
        if kind is not None and kind not in QUEUE_TYPES:
            raise PreconditionFailed(f"default_queue_type: '{kind}' is none of {', '.join(QUEUE_TYPES)}")


NO_METADATA = VhostMetadata()
