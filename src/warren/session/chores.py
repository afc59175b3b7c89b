"""Chores: work of a channel that may be too much for one turn, such as to ack, requeue or commit a hundred
thousand messages.

A channel does its chores one after the other, and waits meanwhile. If the channel ends, its chores still go
on: messages that the client has acked stay acked, and the others return to their queues afterwards. A queue
to which entries return delivers nothing until all of them are back, so that they go out again in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from warren.broker.entry import Entry
from warren.broker.queue import Hold
from warren.session.roles import WorkingChannel

Chore: TypeAlias = tuple[Iterator[int], Callable[[], None] | None]
"""A generator that yields the cost of each step, and a function to call at the end."""

ACKED_AT_A_TIME_MAX = 250
GIVE_BACK_WORK = 2


class Chores:
    """The chores that a channel has not done yet."""

    def __init__(self, first: Chore) -> None:
        self.pending = deque([first])
        self.waits = False  # whether the channel waits for them: they need another turn


def do(channel: WorkingChannel, steps: Iterator[int], then: Callable[[], None] | None = None) -> None:
    """Do a chore behind those that the channel has already, as far as this turn allows, and the rest in turns
    to come. Call `then` at the end.
    """
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
                channel.stop_waiting()  # first, since `then` may have the channel wait for something else
            if then is not None:
                then()
        except Exception as error:  # noqa: BLE001 - if one chore fails, the others must still be done
            channel.connection.node.world.report(error)


def _done(channel: WorkingChannel, chores: Chores) -> None:
    channel.chores = None
    if chores.waits:
        channel.listen_again()


def ack(channel: WorkingChannel, last_tag: int) -> Iterator[int]:
    """Ack all outstanding deliveries up to this tag."""
    while entries := channel.deliveries.take_up_to(last_tag, ACKED_AT_A_TIME_MAX):
        for entry in entries:
            channel.release(entry)
        yield len(entries)
    channel.room_changed()


def give_back(
    channel: WorkingChannel, last_tag: int, *, requeue: bool, settled: bool = True
) -> Iterator[int]:
    """Return all outstanding deliveries up to this tag to their queues or, if not `requeue`, remove them from
    there. The queues are held from this call on, even if the first step comes later.
    """
    hold = Hold(channel.deliveries.queues_up_to(last_tag) if requeue else ())
    return returning(channel, _taken(channel, last_tag), hold, requeue=requeue, settled=settled)


def _taken(channel: WorkingChannel, last_tag: int) -> Iterator[Entry]:
    while entries := channel.deliveries.take_up_to(last_tag, ACKED_AT_A_TIME_MAX):
        yield from entries


def returning(
    channel: WorkingChannel, entries: Iterator[Entry], hold: Hold, *, requeue: bool, settled: bool
) -> Iterator[int]:
    """Give back these entries one by one, and end the hold."""
    try:
        for entry in entries:
            channel.give_back(entry, requeue=requeue, settled=settled)
            yield GIVE_BACK_WORK
    finally:
        hold.end()
    channel.room_changed()


def recover(channel: WorkingChannel, *, requeue: bool) -> Iterator[int]:
    """Carry out basic.recover: requeue every outstanding delivery or, if not `requeue`, deliver it once more
    to its consumer.
    """
    settled = channel.transaction.settled if channel.transaction is not None else {}
    tags = (tag for tag in channel.deliveries.span() if tag not in settled)
    hold = Hold(channel.deliveries.queues_up_to(channel.deliveries.delivery_tag))
    return returning(channel, _recovered(channel, tags, requeue=requeue), hold, requeue=True, settled=False)


def _recovered(channel: WorkingChannel, tags: Iterator[int], *, requeue: bool) -> Iterator[Entry]:
    """Deliver entries to their consumers again; yield those that go back to their queues instead."""
    for tag in tags:
        entry = channel.deliveries.take(tag)
        if entry is None:
            continue
        consumer = None if entry.consumer is None else channel.consumers.get(entry.consumer.tag)
        if requeue or consumer is None or consumer is not entry.consumer:
            yield entry
        else:
            channel.deliver_again(entry, consumer)
