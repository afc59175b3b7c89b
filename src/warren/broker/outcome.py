"""The answers of `Queue.publish`: whether the queue has taken a message, and when the message is safe."""

from __future__ import annotations

STORED = 0  # taken, and there is nothing to wait for
ON_ITS_WAY = 1  # taken, and safe when the round of writing that gathers now is over
AFTER_NEXT_ROUND = 2  # safe a round later: deduplication writes its note when the message itself is safe
REFUSED = 3  # not taken: the queue is full
