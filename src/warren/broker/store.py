"""The interface between the model and the disk. `warren.storage` implements it.

`Store` itself is the store of a broker without a data directory: it keeps nothing. Each log, and the store
for the definitions, names the `Safety` that says when what was written is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from warren.amqp.budget import Budget
from warren.broker.commands import Command
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.message import Message
from warren.broker.safety import NeverAsked, Safety
from warren.broker.stream_filter import StreamFilter

NOTHING_TO_READ = 2**64 - 1  # a position beyond all others
NO_DISK = NeverAsked()


class MoveRun(NamedTuple):
    """Messages that lie one behind the other in two logs of queues, or in parts of them."""

    old_part: str
    old_position: int  # of the first one, in the log that they leave
    new_part: str
    new_position: int
    length: int  # how many messages they are


class LogBrowser:
    """Reads the unread messages of a log in order, and takes none out. Messages that others take out
    meanwhile are passed over.
    """

    def __init__(self) -> None:
        self.location = 0  # of the message whose position was returned last

    def next_position(self, above: int) -> int:
        """The position of the first unread message above this one, or NOTHING_TO_READ."""
        raise NotImplementedError

    def read(self) -> Message:
        """The message whose position `next_position` has just returned."""
        raise NotImplementedError


class MessageLog:
    """The messages of one queue on disk, in order of position. An unread message is only on disk; the queue
    holds the others in memory as well, or has delivered them.
    """

    def __init__(self, safety: Safety) -> None:
        self.safety = safety  # says when what is appended is safe
        self.unread = 0  # how many messages are unread
        self.unread_bytes = 0  # the size of their bodies
        self.given_back = 0  # how often a message became unread again
        self.holds_back = False  # whether messages go to consumers only when they are safe

    def append(self, message: Message, position: int, taken: bool) -> int:
        """Add a message; return its location, for `take_out`. The message is unread unless it is `taken`:
        then the queue holds it in memory.
        """
        raise NotImplementedError

    def peek(self) -> int:
        """The position of the next unread message, or NOTHING_TO_READ."""
        raise NotImplementedError

    def read_on(self, queue: object, ready: EntryList, most: int, most_bytes: int, before: int) -> None:
        """Read the next unread messages whose positions are below `before`, and append entries of them to
        `ready`: at most `most` messages, and at most `most_bytes` plus one message.
        """
        raise NotImplementedError

    def give_back(self, entry: Entry) -> None:
        """Make a message unread again that is not acked. Reading it gives an equal entry."""
        raise NotImplementedError

    def rest(self) -> None:
        """Nobody will read on soon: free the buffers for that."""

    def take_out(self, position: int, location: int) -> Message | None:
        """Read an unread message from the middle; it counts as read from now on. None if the message is lost,
        or not unread any more.
        """
        raise NotImplementedError

    def deliveries_of(self, position: int) -> int:
        """How often a message, which is not acked, had been delivered when the log was opened, or when it was
        given back.
        """
        raise NotImplementedError

    def has_returned(self, position: int) -> bool:
        """Whether a message had been delivered since the log was opened when it was given back."""
        raise NotImplementedError

    def browse(self) -> LogBrowser:
        """A reader of the unread messages that takes none out."""
        raise NotImplementedError

    def due(self) -> Iterable[tuple[int, int, int]]:
        """Time, position and location of each unread message that is scheduled, or expires at a time of its
        own. To be called once, when the log was just opened.
        """
        raise NotImplementedError

    def delivered(self, position: int, deliveries: int) -> None:
        """Note that a message is delivered, and how often it has been delivered now."""
        raise NotImplementedError

    def acked(self, position: int) -> None:
        """Note that a message is not needed any more."""
        raise NotImplementedError

    def purge(self) -> Iterator[int]:
        """Drop all unread messages. Return the steps that note it on disk, which yield their cost."""
        raise NotImplementedError

    def delete(self) -> None:
        """The queue is deleted, and so are its messages."""
        raise NotImplementedError


class StreamReader:
    """Reads the messages of a stream in order: those that are safe and pass the reader's filter."""

    def ready(self) -> int:
        """The size of the next message's body; -1 if there is no message yet; -2 if finding one takes so long
        that others should have their turn first.
        """
        raise NotImplementedError

    def take(self) -> Message:
        """The message whose size `ready` has just returned, with its offset in a header, for delivery."""
        raise NotImplementedError

    def next_position(self) -> int:
        """Where the reader looks for the next message: one above the last message taken or passed over."""
        raise NotImplementedError


class StreamLog:
    """The messages of one stream on disk."""

    def __init__(self, safety: Safety) -> None:
        self.safety = safety  # says when what is appended is safe
        self.offsets: dict[str, int] = {}  # by name, the last offset that a reader is done with
        self.count = 0  # how many messages there are
        self.size_bytes = 0  # the size of the segments
        self.holds_back = False  # whether the log is replicated: then it tells when more is safe

    def when_more_is_safe(self, tell: Callable[[], None]) -> None:
        """Of a log that holds back: call this whenever more messages are safe."""
        raise NotImplementedError

    def append(self, message: Message, position: int, time_ms: int) -> None:
        raise NotImplementedError

    def first_position(self) -> int:
        """The position of the oldest message; if there is none, of the next one to come."""
        raise NotImplementedError

    def safe_position(self) -> int:
        """The position of the last message that is safe, and so may be delivered."""
        raise NotImplementedError

    def all_is_safe(self) -> bool:
        """Whether all messages are safe."""
        raise NotImplementedError

    def newest_ms(self) -> int:
        """The time of the last message; 0 if there is none."""
        raise NotImplementedError

    def position_at(self, time_ms: int) -> int:
        """The position of the first message since this time; if there is none, of the next one to come."""
        raise NotImplementedError

    def reader(self, position: int, wanted: StreamFilter | None) -> StreamReader:
        """A reader that begins at this position."""
        raise NotImplementedError

    def set_segment_bytes(self, segment_bytes: int | None) -> None:
        """Set the size at which a segment is full; None for the usual one."""
        raise NotImplementedError

    def retain(self, max_bytes: int | None, max_messages: int | None, since_ms: int | None) -> int:
        """Drop whole segments from the front: while there are more bytes or messages than this, or while all
        messages of the oldest segment are older than `since_ms`. Return the time of the last message in the
        oldest segment that may still be dropped; 0 if there is none.
        """
        raise NotImplementedError

    def note_offset(self, name: str, offset: int | None) -> None:
        """Remember an offset under a name; None forgets it."""
        raise NotImplementedError

    def delete(self) -> None:
        """The stream is deleted, and so are its messages."""
        raise NotImplementedError


class MoveNotes:
    """Notes on disk of the messages that are on their way from one queue's log to another's. After a crash,
    those that have reached the new log are removed from the old one, so that none is in both.
    """

    def write(self, runs: Sequence[MoveRun]) -> None:
        """Note messages that were appended to the new log just now, in place of those noted before."""
        raise NotImplementedError

    def are_settled(self) -> bool:
        """Write that the messages noted last have left the old log, if they have. Return whether that could
        be written.
        """
        raise NotImplementedError

    def remove(self) -> None:
        """No more messages are moved."""
        raise NotImplementedError


class Store:
    """A disk. This class keeps nothing: it opens no log, and definitions are safe at once."""

    keeps_streams = False

    @property
    def safety(self) -> Safety:
        """Says when a definition that was recorded is safe."""
        return NO_DISK

    def begin_round(self) -> None:
        """If the disk is idle, begin to write what has gathered now, and not only in the next turn."""

    def charge(self, budget: Budget) -> None:
        """From now on, take off this budget what `write_marks` will have to do, as soon as that is known: so
        a turn stops before it delivers more than it can write down.
        """

    def write_marks(self) -> None:
        """Write down what was delivered and acked, before any client can hear of it."""

    def record(self, command: Command, number: int = 0) -> None:
        """Keep a command that was carried out. A queue gets this number, if any, and else the next one."""

    def is_saving(self) -> bool:
        """Whether any change of the definitions is not safe yet."""
        return False

    def open_log(self, vhost: str, queue: str, part: str = "") -> tuple[MessageLog, int] | None:
        """The log of a durable queue, with its messages from earlier runs, and the last position in it; None
        if the store keeps nothing. A queue may have more than one log: each has the name of a `part`.
        """
        return None

    def open_stream(self, vhost: str, name: str) -> tuple[StreamLog, int]:
        """The log of a stream, and the last position in it."""
        raise NotImplementedError

    def begin_moves(self, vhost: str, source: str, target: str) -> MoveNotes | None:
        """Notes of messages that are moved between two queues of a vhost; None unless both are on disk."""
        return None

    def open_overflow(self) -> MessageLog | None:
        """A log for messages that need not survive a restart, but for which there is no room in memory."""
        return None
