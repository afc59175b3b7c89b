"""What the model asks of a disk. The classes here are those of a broker that has none.

What is written is not safe at once: it gathers for a round of writing and syncing that has a number, and
whoever answers for it, a confirm or a declare-ok, waits until that round is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warren.broker.entry_list import EntryList
from warren.broker.message import Message

if TYPE_CHECKING:
    from warren.broker.commands import Command
    from warren.broker.queue import Queue

NOTHING_TO_READ = 2**64 - 1


class MessageLog:
    """The messages of one queue on disk, in order of position. Those `unread` wait there alone; the others
    the queue holds, or has given to a consumer.
    """

    def __init__(self) -> None:
        self.unread = 0
        self.unread_bytes = 0

    def append(self, message: Message, position: int, taken: bool) -> None:
        """Add a message. If not `taken`, the queue will read it when its time comes."""
        raise NotImplementedError

    def peek(self) -> int:
        """The position of the next unread message, or NOTHING_TO_READ."""
        raise NotImplementedError

    def read_on(self, queue: Queue, ready: EntryList, most: int, before: int) -> None:
        """Append to `ready` entries of the next unread messages whose positions are below `before`."""
        raise NotImplementedError

    def delivered(self, position: int, deliveries: int) -> None:
        """A message goes out for so many times."""
        raise NotImplementedError

    def acked(self, position: int) -> None:
        """A message is done with."""
        raise NotImplementedError

    def purge(self) -> None:
        """All that is unread is done with."""
        raise NotImplementedError

    def delete(self) -> None:
        """The queue is gone, and so are its messages."""
        raise NotImplementedError


class Store:
    """`gathering` is the number of the round that will make safe what is written now; `behind` says that so
    much has gathered that publishers should wait.
    """

    gathering = 1
    behind = False

    def when_safe(self, callback: Callable[[int], None]) -> None:
        """Call back with the round's number when the round that gathers now is over."""
        raise NotImplementedError

    def begin_round(self) -> None:
        """Send off what has gathered, if the disk has nothing to do, and not only in the next turn."""

    def write_marks(self) -> None:
        """Note what was delivered and acked, before any client can hear of it."""

    def record(self, command: Command) -> None:
        """Keep a command that was carried out."""

    def is_saving(self) -> bool:
        """Whether a definition has changed, whoever changed it, and that is not safe yet."""
        return False

    def open_log(self, vhost: str, queue: str) -> tuple[MessageLog, int] | None:
        """The log of a durable queue, with what it has from the time before, and the last position there."""
        return None

    def open_overflow(self) -> MessageLog | None:
        """A log for messages that need not survive, but that memory has no room for."""
        return None
