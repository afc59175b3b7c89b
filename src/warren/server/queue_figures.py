"""What is counted of a queue, wherever in the cluster it lives."""

from __future__ import annotations

from typing import cast

from warren.broker.queue import Queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.queue_figures import QueueFigures
from warren.session.consumer import ChannelConsumer


def consumers_on(queue: Queue) -> list[ChannelConsumer]:
    return cast("list[ChannelConsumer]", queue.consumers) if queue.is_consumed else []


def figures_of(queue: Queue) -> QueueFigures | None:
    """None if the queue lives on another node, which has not told of it yet."""
    return queue.figures if isinstance(queue, QueueElsewhere) else count(queue)


def count(queue: Queue) -> QueueFigures:
    """Of a queue that lives here."""
    held, held_bytes = queue.held_in_memory()
    consumers = consumers_on(queue)
    tally = queue.tally
    return QueueFigures(
        ready=queue.length(),
        ready_bytes=queue.body_bytes(),
        held=held,
        held_bytes=held_bytes,
        unacked=queue.unacked,
        unacked_bytes=sum(each.unacked_bytes for each in consumers),
        consumers=len(consumers),
        has_room=any(map(_has_room, consumers)),
        published=tally.published,
        delivered=tally.delivered,
        delivered_no_ack=tally.delivered_no_ack,
        got=tally.got,
        got_no_ack=tally.got_no_ack,
        got_empty=tally.got_empty,
        redelivered=tally.redelivered,
        acked=tally.acked,
    )


def _has_room(consumer: ChannelConsumer) -> bool:
    return consumer.no_ack or not consumer.prefetch_count or consumer.unacked < consumer.prefetch_count
