"""What a client asks for on a channel that may be too much for one turn: to ack, give back or commit very
many.

Chores are done one after the other, while the channel waits. Those of a channel that ends go on: what its
client has acked stays acked, and the rest returns behind that. A queue to which entries return delivers
nothing until all of them are there, so that they go out again in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from warren.broker.entry import Entry
from warren.broker.queue import Queue
from warren.session.roles import WorkingChannel

Chore: TypeAlias = tuple[Iterator[int], Callable[[], None] | None]

ACKED_AT_A_TIME_MAX = 250
GIVE_BACK_WORK = 2


class Chores:
    """Those of a channel that are not done yet. The channel `waits` for them once they need another turn."""

    def __init__(self, first: Chore) -> None:
        self.pending = deque([first])
        self.waits = False


def do(channel: WorkingChannel, steps: Iterator[int], then: Callable[[], None] | None = None) -> None:
    """Now as far as the turn allows, behind what the channel has to do already; `then` comes at the end."""
    if channel.chores is not None:
        channel.chores.pending.append((steps, then))
        return
    chores = channel.chores = Chores((steps, then))
    channel.connection.node.turns.spread(_steps(channel, chores), lambda: _done(channel, chores))
    if channel.chores is chores:
        chores.waits = True
        channel.wait()


def _steps(channel: WorkingChannel, chores: Chores) -> Iterator[int]:
    while chores.pending:
        steps, then = chores.pending.popleft()
        try:
            yield from steps
            if chores.waits:
                channel.stop_waiting()  # before what comes then, which may have it wait for something else
            if then is not None:
                then()
        except Exception as error:  # noqa: BLE001 - a mistake of ours in one must not keep the others undone
            channel.connection.node.world.report(error)


def _done(channel: WorkingChannel, chores: Chores) -> None:
    channel.chores = None
    if chores.waits:
        channel.listen_again()


def ack(channel: WorkingChannel, last_tag: int) -> Iterator[int]:
    """All that is outstanding up to this tag."""
    while entries := channel.deliveries.take_up_to(last_tag, ACKED_AT_A_TIME_MAX):
        for entry in entries:
            channel.release(entry)
        yield len(entries)
    channel.room_changed()


class Hold:
    """Queues that deliver nothing until all that returns to them is there, so that it goes out in order."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues = list(queues)
        for queue in self.queues:
            queue.returning += 1

    def end(self) -> None:
        for queue in self.queues:
            queue.returning -= 1
            queue.touch()
        self.queues.clear()


def give_back(
    channel: WorkingChannel, last_tag: int, *, requeue: bool, settled: bool = True
) -> Iterator[int]:
    """All that is outstanding up to this tag returns to its queues, or, if not `requeue`, leaves them. The
    queues are held from now on, whenever it begins.
    """
    hold = Hold(channel.deliveries.queues_up_to(last_tag) if requeue else ())
    return returning(channel, _taken(channel, last_tag), hold, requeue=requeue, settled=settled)


def _taken(channel: WorkingChannel, last_tag: int) -> Iterator[Entry]:
    while entries := channel.deliveries.take_up_to(last_tag, ACKED_AT_A_TIME_MAX):
        yield from entries


def returning(
    channel: WorkingChannel, entries: Iterator[Entry], hold: Hold, *, requeue: bool, settled: bool
) -> Iterator[int]:
    """Entries that are taken from the outstanding ones, each in its turn."""
    try:
        for entry in entries:
            channel.give_back(entry, requeue=requeue, settled=settled)
            yield GIVE_BACK_WORK
    finally:
        hold.end()
    channel.room_changed()


def recover(channel: WorkingChannel, *, requeue: bool) -> Iterator[int]:
    """Everything outstanding goes back to its queue, or once more to whom it was delivered."""
    settled = channel.transaction.settled if channel.transaction is not None else {}
    tags = (tag for tag in channel.deliveries.span() if tag not in settled)
    hold = Hold(channel.deliveries.queues_up_to(channel.deliveries.delivery_tag))
    return returning(channel, _recovered(channel, tags, requeue=requeue), hold, requeue=True, settled=False)


def _recovered(channel: WorkingChannel, tags: Iterator[int], *, requeue: bool) -> Iterator[Entry]:
    """Those that do not go to their consumers again."""
    for tag in tags:
        entry = channel.deliveries.take(tag)
        if entry is None:
            continue
        consumer = None if entry.consumer is None else channel.consumers.get(entry.consumer.tag)
        if requeue or consumer is None or consumer is not entry.consumer:
            yield entry
        else:
            channel.deliver_again(entry, consumer)
