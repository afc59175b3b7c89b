"""What the model asks of a disk. The classes here are those of a broker that has none.

What is written is not safe at once: each log, and the store for the definitions, names the `Safety` that says
when it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.broker.commands import Command
from warren.broker.entry_list import EntryList
from warren.broker.message import Message
from warren.broker.safety import NeverAsked, Safety
from warren.broker.stream_filter import StreamFilter

NOTHING_TO_READ = 2**64 - 1
NO_DISK = NeverAsked()


class LogBrowser:
    """Reads what waits in a log, in order; what is taken by others meanwhile is not seen any more. `location`
    is where the message lies whose position was last given.
    """

    def __init__(self) -> None:
        self.location = 0

    def next_position(self, above: int) -> int:
        """Of the first unread message above this position, or NOTHING_TO_READ."""
        raise NotImplementedError

    def read(self) -> Message:
        """The message whose position was just given."""
        raise NotImplementedError


class MessageLog:
    """The messages of one queue on disk, in order of position. Those that are unread are there alone; the
    others are held by the queue as well, or were given to a consumer.
    """

    def __init__(self, safety: Safety) -> None:
        self.safety = safety  # says when what is appended is safe
        self.unread = 0  # how many messages are on disk alone
        self.unread_bytes = 0  # the size of their bodies
        self.given_back = 0  # how often a message became unread again

    def append(self, message: Message, position: int, taken: bool) -> int:
        """Add a message. If not `taken`, the queue will read it when its time comes. Where it lies, for
        `take_out`.
        """
        raise NotImplementedError

    def peek(self) -> int:
        """The position of the next unread message, or NOTHING_TO_READ."""
        raise NotImplementedError

    def read_on(self, queue: object, ready: EntryList, most: int, most_bytes: int, before: int) -> None:
        """Append to `ready` entries of the next unread messages whose positions are below `before`: at most
        so many, and so many bytes and one message.
        """
        raise NotImplementedError

    def give_back(self, message: Message, position: int, deliveries: int) -> int:
        """The message that was read last, or appended as taken, and is alive, is unread again. Where it lies;
        0 if that cannot be.
        """
        raise NotImplementedError

    def rest(self) -> None:
        """Nobody is about to read on: let go of what that would need."""

    def take_out(self, position: int, location: int) -> Message | None:
        """An unread message leaves from the middle, and counts as read from now on. None if it is lost, or
        not unread any more.
        """
        raise NotImplementedError

    def deliveries_of(self, position: int) -> int:
        """How often a message that is alive had been delivered when the log was opened."""
        raise NotImplementedError

    def browse(self) -> LogBrowser:
        """A pointer of its own to the unread messages, which takes nothing."""
        raise NotImplementedError

    def due(self) -> Iterable[tuple[int, int, int]]:
        """When, position and location of unread messages that are due at a time of their own: they are
        scheduled, or they expire. To be asked once, when the log was just opened.
        """
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


class StreamReader:
    """Reads a stream in order, what is safe of it, and of that what its filter wants."""

    def ready(self) -> int:
        """The size of the next message's body; -1 if there is none yet, or -2 if looking for it took so long
        that others should have their turn.
        """
        raise NotImplementedError

    def take(self) -> Message:
        """The message whose size was just given, as it is delivered: with the header that says its offset."""
        raise NotImplementedError

    def next_position(self) -> int:
        """Of the next message, if nothing is in between that is left out."""
        raise NotImplementedError


class StreamLog:
    """The messages of one stream on disk."""

    def __init__(self, safety: Safety) -> None:
        self.safety = safety  # says when what is appended is safe
        self.offsets: dict[str, int] = {}  # how far readers have come, by the names they go by
        self.count = 0  # how many messages there are
        self.size_bytes = 0  # the size of the segments

    def append(self, message: Message, position: int, time_ms: int) -> None:
        raise NotImplementedError

    def first_position(self) -> int:
        """Of the first message that is still there; of the next one, if there is none."""
        raise NotImplementedError

    def safe_position(self) -> int:
        """Of the last message that a consumer may get."""
        raise NotImplementedError

    def all_is_safe(self) -> bool:
        """Whether consumers may get all that there is."""
        raise NotImplementedError

    def newest_ms(self) -> int:
        """The time of the last message; 0 if there is none."""
        raise NotImplementedError

    def position_at(self, time_ms: int) -> int:
        """Of the first message that came at a time or later; of the next one, if there is none."""
        raise NotImplementedError

    def reader(self, position: int, wanted: StreamFilter | None) -> StreamReader:
        raise NotImplementedError

    def set_segment_bytes(self, segment_bytes: int | None) -> None:
        """At which size a segment is full; None stands for the usual one."""
        raise NotImplementedError

    def retain(self, max_bytes: int | None, max_messages: int | None, since_ms: int | None) -> int:
        """Drop whole segments, oldest first, while there is more than this, or what came before that time.
        The time of the last message in the oldest segment that could go; 0 if there is none.
        """
        raise NotImplementedError

    def note_offset(self, name: str, offset: int | None) -> None:
        """A name stands for this offset from now on, or for none."""
        raise NotImplementedError

    def delete(self) -> None:
        """The stream is gone, and so are its messages."""
        raise NotImplementedError


class Store:
    """A disk; here, none. No log can be opened then, and a definition is safe as soon as it is recorded."""

    keeps_streams = False

    @property
    def safety(self) -> Safety:
        """Says when a definition that was recorded is safe."""
        return NO_DISK

    def begin_round(self) -> None:
        """Send off what has gathered, if the disk has nothing to do, and not only in the next turn."""

    def write_marks(self) -> None:
        """Note what was delivered and acked, before any client can hear of it."""

    def record(self, command: Command) -> None:
        """Keep a command that was carried out."""

    def is_saving(self) -> bool:
        """Whether a definition has changed, whoever changed it, and that is not safe yet."""
        return False

    def open_log(self, vhost: str, queue: str, part: str = "") -> tuple[MessageLog, int] | None:
        """The log of a durable queue, with what it has from the time before, and the last position there. A
        queue may have further ones, each known by the name of its `part`, that go with it.
        """
        return None

    def open_stream(self, vhost: str, name: str) -> tuple[StreamLog, int]:
        """The log of a stream, and the last position there."""
        raise NotImplementedError

    def open_overflow(self) -> MessageLog | None:
        """A log for messages that need not survive, but that memory has no room for."""
        return None
