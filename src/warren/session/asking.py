"""A change that a client asks for on a channel: it is answered when the change is made, at once or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from warren.amqp.errors import AmqpError
from warren.broker.changes import Applied
from warren.broker.commands import Command
from warren.session.roles import Host


class Asker(Protocol):
    """A channel, as far as it asks for changes."""

    connection: Host
    number: int
    waiting: bool

    @property
    def discarding(self) -> bool: ...
    def wait(self) -> int: ...
    def stop_waiting(self) -> None: ...
    def listen_again(self) -> None: ...


class Asking:
    def __init__(self, channel: Asker, then: Callable[[Applied], None]) -> None:
        self.channel = channel
        self.then = then
        self.applied: Applied | None = None
        self.waits = False  # whether the channel waits for the change
        self.method_id = (0, 0)  # of the method that asked for it, for an error that comes late

    def ask(self, command: Command) -> None:
        """Have the change made. An error that is known at once is raised, as any error of a method is."""
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
        """Answer a client that has waited."""
        error = applied.error
        if error is None:
            try:
                self.then(applied)
            except AmqpError as found:
                error = found
        if error is not None:
            error.method_id = self.method_id
            self.channel.connection.on_error(self.channel.number, error)
