"""A blocking connection to a broker, for a thread that has nothing else to do.

It drives dialogues, and reads while it sends: a broker that waits for its answers to be read does not read
either, and both sides would wait for ever. Frames that no dialogue asked for go to the owner's `on_frame`.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from warren.amqp.methods import (
    ChannelClose,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionUnblocked,
    Method,
)
from warren.client.dial import closing, dial, read_method, unexpected
from warren.client.dialogue import Dialogue, Request, log_in, log_out
from warren.client.errors import ClientError, OutageError
from warren.client.inbox import Frame, FrameKind, Inbox
from warren.client.uri import Uri

ANSWER_SECONDS_MAX = 60
RECEIVE_BYTES = 64 * 1024
T = TypeVar("T")


class ClientConnection:
    """A connection that is logged in, with one channel open."""

    def __init__(self, uri: Uri, *, product: str, on_frame: Callable[[Frame], None] | None = None) -> None:
        self.blocked = False  # whether the broker wants no publishes for now
        self._address = uri.address
        self._on_frame = on_frame or _nothing_expected  # gets each frame that no dialogue asked for
        self._reply: type[Method] | None = None  # the method that the dialogue waits for
        self._answers: list[Method] = []  # such methods that have arrived
        self._inbox = Inbox()
        self._socket = dial(uri)
        self._poll = select.poll()
        self._poll.register(self._socket)
        try:
            greeting = self.talk(log_in(uri, product=product))
        except BaseException:
            self.close()
            raise
        self.frame_max = greeting.frame_max  # the largest frame that we may send
        self.server_properties = greeting.server_properties

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        """Log out, unless an error ends the connection."""
        try:
            if kind is None:
                self.talk(log_out())
        finally:
            self.close()

    def close(self) -> None:
        self._socket.close()

    def talk(self, dialogue: Dialogue[T]) -> T:
        """Carry on the dialogue to its end; return its result."""
        try:
            request = next(dialogue)
            while True:
                request = dialogue.send(self._answer(request))
        except StopIteration as end:
            result: T = end.value
            return result

    def _answer(self, request: Request) -> Method:
        self._reply = request.reply
        self.send([request.data])
        while not self._answers:
            self.receive(ANSWER_SECONDS_MAX)
        self._reply = None
        return self._answers.pop()

    def send(self, chunks: Sequence[bytes | memoryview], *, timeout_s: float = ANSWER_SECONDS_MAX) -> None:
        """Send all chunks, and read meanwhile whatever arrives."""
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                readable, writable = self._wait(timeout_s, writing=True)
                if not readable and not writable:
                    raise OutageError(f"the broker at {self._address} took nothing for {timeout_s} seconds")
                if readable:
                    self._take()
                if writable:
                    view = view[self._write(view) :]

    def receive(self, timeout_s: float) -> None:
        """Wait until something arrives, and read it."""
        if not self._wait(timeout_s, writing=False)[0]:
            raise OutageError(f"the broker at {self._address} did not answer within {timeout_s} seconds")
        self._take()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Read what has arrived already, or arrives within this time."""
        if self._wait(timeout_s, writing=False)[0]:
            self._take()

    def _wait(self, timeout_s: float, *, writing: bool) -> tuple[bool, bool]:
        """Whether the socket is readable, and whether it is writable; after an error it is both."""
        self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if writing else 0))
        events = self._poll.poll(timeout_s * 1000)
        flags = events[0][1] if events else 0
        return bool(flags & ~select.POLLOUT), bool(flags & ~select.POLLIN)

    def _write(self, view: memoryview) -> int:
        try:
            return self._socket.send(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.poll()  # the broker may have told the reason before it closed
            raise self._broken(error) from error

    def _take(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._broken(error) from error
        if not data:
            raise OutageError(f"the broker at {self._address} dropped the connection")
        for frame in self._inbox.feed(data):
            self._dispatch(frame)

    def _broken(self, error: OSError) -> OutageError:
        return OutageError(f"the connection to {self._address} broke: {error.strerror}")

    def _dispatch(self, frame: Frame) -> None:
        if frame.kind == FrameKind.HEARTBEAT:
            return
        if frame.kind != FrameKind.METHOD or not self._concerns_us(frame):
            self._on_frame(frame)
            return
        method = read_method(frame.payload)
        closed = closing(frame.channel, method)
        if closed is not None:
            answer, error = closed
            self._last_word(answer)
            raise error
        if isinstance(method, ConnectionBlocked | ConnectionUnblocked):
            self.blocked = isinstance(method, ConnectionBlocked)
        else:
            self._answers.append(method)

    def _concerns_us(self, frame: Frame) -> bool:
        """Whether this class handles the method. All others go to the owner, which can read them faster."""
        kind = (int.from_bytes(frame.payload[:2]), int.from_bytes(frame.payload[2:4]))
        return kind in OWN or (self._reply is not None and kind == self._reply.id)

    def _last_word(self, answer: bytes) -> None:
        try:
            self._socket.send(answer)
        except OSError:
            return  # our caller raises the broker's reason, which matters more


OWN = {kind.id for kind in (ConnectionClose, ChannelClose, ConnectionBlocked, ConnectionUnblocked)}


def _nothing_expected(frame: Frame) -> None:
    if frame.kind == FrameKind.METHOD:
        raise unexpected(read_method(frame.payload))
    raise ClientError("the broker sent content when nothing like it was due")
