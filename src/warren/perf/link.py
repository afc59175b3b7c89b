"""A connection of the load tool: a socket that does not block, its scanner, and at times a dialogue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from warren.amqp.methods import (
    BasicCancel,
    ChannelFlow,
    ChannelFlowOk,
    ConnectionBlocked,
    ConnectionCloseOk,
    ConnectionUnblocked,
    Method,
)
from warren.client.dial import closing, dial, read_method, unexpected
from warren.client.dialogue import Dialogue, log_out
from warren.client.errors import ClientError
from warren.client.frames import method_frame
from warren.client.uri import Uri
from warren.perf.interrupt import Interrupt
from warren.perf.loop import TURN_SECONDS_MAX, Loop
from warren.perf.scanner import Scanner

ANSWER_SECONDS_MAX = 30
FAREWELL_SECONDS_MAX = 30
SEND_BUFFER_BYTES = 128 * 1024
"""How many bytes the kernel may buffer. They count as published, but the broker has yet to read them when the
run ends."""

READS_MAX = 16
"""How often a link may read in one turn, while the others wait."""

NOTHING = memoryview(b"")


class LoadLink:
    """One connection. A connection that fails is closed."""

    def __init__(
        self, loop: Loop, uri: Uri, scanner: Scanner | None = None, on_read: Callable[[], None] | None = None
    ) -> None:
        self.scanner = scanner or Scanner()
        self.pending = NOTHING  # what the socket has not taken yet; no copy, so the sender must not change it
        self.held = False  # whether the broker wants no publishes for now
        self.held_count = 0  # how often that began
        self.error: ClientError | None = None  # why the connection failed
        self._loop = loop
        self._on_read = on_read  # called after each read
        self._dialogue: Dialogue[None] | None = None
        self._reply: type[Method] | None = None  # the method that the dialogue waits for
        self._socket = dial(uri, send_buffer_bytes=SEND_BUFFER_BYTES)
        loop.add(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def talking(self) -> bool:
        return self._dialogue is not None

    def start(self, dialogue: Dialogue[None]) -> None:
        self._dialogue = dialogue
        try:
            self._advance(None)
        except ClientError as error:
            self.fail(error)

    def _advance(self, answer: Method | None) -> None:
        if self._dialogue is None:
            raise ClientError("the broker sent an answer that was not asked for")
        try:
            request = self._dialogue.send(answer) if answer else next(self._dialogue)
        except StopIteration:
            self._dialogue = self._reply = None
        else:
            self._reply = request.reply
            self.send(request.data)

    def send(self, data: bytes | memoryview) -> None:
        """Send as much as the socket takes now, and the rest when it takes more."""
        if self.pending:
            self.pending = memoryview(b"".join((self.pending, data)))
            return
        self.pending = memoryview(data)
        self._flush()
        if self.pending:
            self._loop.watch_writable(self, wanted=True)

    def on_writable(self) -> None:
        self._flush()
        if not self.pending:
            self._loop.watch_writable(self, wanted=False)

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self.pending)
        except BlockingIOError:
            return
        except OSError as error:
            self.on_readable()  # the broker may have told the reason before it closed
            raise ClientError(f"the connection broke: {error.strerror}") from error
        self.pending = self.pending[sent:]

    def on_readable(self) -> None:
        buffer = self._loop.buffer
        for _ in range(READS_MAX):
            size = self._receive(buffer)
            self.scanner.feed(buffer, size, time.monotonic_ns())
            if self.scanner.methods:
                self._take_methods()
            if self.fileno() < 0:
                return
            if self._on_read is not None:
                self._on_read()
            if size < len(buffer):
                return

    def _receive(self, buffer: bytearray) -> int:
        try:
            size = self._socket.recv_into(buffer)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ClientError(f"the connection broke: {error.strerror}") from error
        if size == 0:
            raise ClientError("the broker dropped the connection")
        return size

    def _take_methods(self) -> None:
        for channel, payload in self.scanner.take_methods():
            self._on_method(channel, read_method(payload))

    def _on_method(self, channel: int, method: Method) -> None:
        closed = closing(channel, method)
        if closed is not None:
            answer, error = closed
            self.send(answer)
            raise error
        match method:
            case BasicCancel():
                self._on_cancel()
            case ConnectionBlocked() | ConnectionUnblocked():
                self._hold(isinstance(method, ConnectionBlocked))
            case ChannelFlow():
                self.send(method_frame(channel, ChannelFlowOk(active=method.active)))
                self._hold(not method.active)
            case _:
                if self._reply is None or not isinstance(method, self._reply):
                    raise unexpected(method)
                self._advance(method)
        if isinstance(method, ConnectionCloseOk):
            self.close()

    def _on_cancel(self) -> None:
        """Fail, unless a dialogue runs: at the end of a run we delete the queue ourselves."""
        if not self.talking:
            raise ClientError("the broker cancelled a consumer: somebody deleted its queue")

    def _hold(self, held: bool) -> None:
        self.held_count += held and not self.held
        self.held = held

    def fail(self, error: ClientError) -> None:
        self.error = self.error or error
        self.close()

    def close(self) -> None:
        """Drop the connection, and its dialogue."""
        self._dialogue = self._reply = None
        self.pending = NOTHING
        if self._socket.fileno() >= 0:
            self._loop.remove(self)
            self._socket.close()


def finish(loop: Loop, links: Sequence[LoadLink]) -> None:
    """Wait until the dialogues of all these links have ended. If one has failed, raise its error."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while any(link.talking for link in links):
        loop.turn(max(0.0, deadline - time.monotonic()))
        if time.monotonic() > deadline:
            raise ClientError(f"the broker did not answer within {ANSWER_SECONDS_MAX} seconds")
    for link in links:
        if link.error is not None:
            raise link.error


def part(loop: Loop, links: Sequence[LoadLink], interrupt: Interrupt | None = None) -> None:
    """Log out on all these links, and close them.

    A broker answers once it has dealt with all that was sent before. This waits for the answer, since work
    that one run left would slow down the next. An interrupt ends the wait.
    """
    interrupt = interrupt or Interrupt()
    for link in links:
        if link.fileno() >= 0:
            link.start(log_out())
    deadline = time.monotonic() + FAREWELL_SECONDS_MAX
    while any(link.talking for link in links) and time.monotonic() < deadline and not interrupt.requested:
        loop.turn(TURN_SECONDS_MAX)
    for link in links:
        link.close()
