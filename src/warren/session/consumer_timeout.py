"""Closes channels whose deliveries are not acknowledged in time: their clients have lost them, or hang.

Most channels are passed over: each notes when one of its deliveries may be late at the earliest.
"""

from __future__ import annotations

from collections.abc import Iterator

from warren.amqp.errors import PreconditionFailed
from warren.broker.entry import Entry
from warren.broker.events import ConsumerTimedOut
from warren.session.channel import Channel

LOOK_MS_MAX = 60_000
LOOK_WORK = 1  # units of work for each delivery, or channel, that is looked at


def check_timeout(channel: Channel, now_ms: int, default_ms: int) -> Iterator[int]:
    """Close the channel if it has had a message for too long; else note when to look again. That is done step
    by step, and yields the cost of each.
    """
    yield LOOK_WORK
    if now_ms < channel.look_again_ms or channel.discarding:
        return
    look_again_ms = now_ms + LOOK_MS_MAX
    for tag in channel.deliveries.span():
        entry = channel.deliveries.find(tag)
        timeout_ms = 0 if entry is None else _timeout_of(entry, default_ms)
        if entry is not None and timeout_ms:
            if entry.delivered_ms + timeout_ms <= now_ms:
                if channel.is_open:  # the client may have closed it since the first step
                    _close(channel, entry, timeout_ms)
                return
            look_again_ms = min(look_again_ms, entry.delivered_ms + timeout_ms)
        yield LOOK_WORK
    for consumer in channel.consumers.values():
        look_again_ms = min(look_again_ms, now_ms + (consumer.queue.rules.consumer_timeout or LOOK_MS_MAX))
    channel.look_again_ms = look_again_ms if channel.deliveries.outstanding else now_ms


def _timeout_of(entry: Entry, default_ms: int) -> int:
    """How long an entry may be out; 0 for ever, as one may that is only browsed."""
    if entry.position == 0:
        return 0
    own: int | None = entry.queue.rules.consumer_timeout
    return default_ms if own is None else own


def _close(channel: Channel, entry: Entry, timeout_ms: int) -> None:
    connection, queue = channel.connection, entry.queue
    error = PreconditionFailed(
        f"delivery acknowledgement on channel {channel.number} timed out. "
        f"Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
    error.method_id = (0, 0)
    event = ConsumerTimedOut(queue.vhost, queue.name, connection.name, channel.number)
    channel.events.emit(event)
    connection.on_error(channel.number, error)
