"""A change of the topology that a client asks for on a channel. The client gets its answer when the node has
made the change, which may be at once or later; until then the channel waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from warren.amqp.errors import AmqpError, NotFound
from warren.broker.changes import Applied
from warren.broker.commands import Command
from warren.session.roles import Host


class Asker(Protocol):
    """What `Asking` needs of a channel."""

    connection: Host
    number: int
    waiting: bool

    @property
    def discarding(self) -> bool: ...
    def wait(self) -> int: ...
    def stop_waiting(self) -> None: ...
    def listen_again(self) -> None: ...


class Asking:
    """One change, from the request to the answer."""

    def __init__(self, channel: Asker, then: Callable[[Applied], None]) -> None:
        self.channel = channel
        self.then = then  # sends the answer to the client
        self.applied: Applied | None = None  # the result, once the node has made the change
        self.waits = False  # whether the channel waits for the change
        self.method_id = (0, 0)  # the method that asked for the change; a late error names it

    def ask(self, command: Command) -> None:
        """Have the node make the change. If it fails at once, raise the error, as any method does."""
        connection = self.channel.connection
        self.method_id = connection.handling or (0, 0)
        connection.node.change(command, self._made)
        if self.applied is None:
            self.waits = True
            self.channel.wait()
        elif self.applied.error is not None:
            raise self.applied.error
        else:
            self.then(self.applied)

    def _made(self, applied: Applied) -> None:
        self.applied = applied
        if self.waits and self.channel.waiting and not self.channel.discarding:
            self.channel.stop_waiting()
            self._answer(applied)
            self.channel.listen_again()

    def _answer(self, applied: Applied) -> None:
        """Answer a client whose channel has waited."""
        error = applied.error
        if error is None:
            try:
                self.then(applied)
            except AmqpError as found:
                error = found
        if error is not None:
            error.method_id = self.method_id
            self.channel.connection.on_error(self.channel.number, error)


def look_again(channel: Asker, handle: Callable[[], None], error: NotFound) -> None:
    """A method named what this node does not have. In a cluster, another node may have made that just now:
    handle the method once more when this one has caught up. Elsewhere, raise the error.
    """
    connection = channel.connection
    proposer = connection.node.proposer
    if proposer is None or channel.waiting:
        raise error
    method_id = connection.handling
    channel.wait()

    def handle_again(reason: AmqpError | None) -> None:
        if not channel.waiting or channel.discarding:
            return
        channel.stop_waiting()
        connection.handling = method_id
        try:
            if reason is not None:
                raise reason
            handle()
        except AmqpError as found:
            connection.on_error(channel.number, found)
        connection.handling = None
        channel.listen_again()

    proposer.catch_up(handle_again)
