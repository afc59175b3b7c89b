"""A walk through the messages that wait in a queue: for operators who look into it, or take messages out.

A walk goes once from the head to the tail. Messages that come after it has begun are not looked at, so that
it ends however many come; those that a client gives back behind it are not looked at again. No consumer
notices a walk, and no delivery is counted. `Queue.walk` makes one.
"""

from __future__ import annotations

from warren.broker.entry import Entry


class Walk:
    is_over = False
    """Whether `find` has come to the end."""

    def begin_turn(self, looks: int) -> None:
        """A turn begins, in which the walk may look at this many messages."""
        raise NotImplementedError

    def find(self) -> Entry | None:
        """The next message that is wanted. It is still in the queue, and is to be taken or passed by in this
        turn; else it is found again. None if there is no other one, or if the walk may look no further in
        this turn.
        """
        raise NotImplementedError

    def take(self) -> Entry | None:
        """Take the message that was found out of its queue, which has to be told what became of it, as with
        `forget`. None if the message cannot be read any more.
        """
        raise NotImplementedError

    def pass_by(self) -> None:
        """Leave the message that was found where it is, and go on behind it."""
        raise NotImplementedError

    def end(self) -> None:
        """Let go of the queue's entries."""
