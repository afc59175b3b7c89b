"""What only the answer about one queue tells: it would cost a list of many queues too much.

    "messages_persistent": 3, "message_bytes_persistent": 30, "incoming": [], "deliveries": [],
    "open_files": {"warren": 1}, "messages_dlx": 0, …

The fields of each type of queue are those that RabbitMQ has for it.
"""

from __future__ import annotations

from typing import TypeAlias

from warren.broker.classic_queue import ClassicQueue
from warren.broker.entry import Entry
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.rules import QUORUM, STREAM, queue_type
from warren.management.consumers import single_active_tag
from warren.management.listing import Row
from warren.server.pace import at_a_pace
from warren.server.queue_figures import consumers_on
from warren.storage.files import OpenFiles
from warren.storage.log_listing import logs_of

Amount: TypeAlias = tuple[int, int]
"""A number of messages, and the size of their bodies."""


async def details_of(node: Node, files: OpenFiles, queue: Queue) -> Row:
    """As with RabbitMQ's usual settings, rates are not broken down by exchanges and channels. Of a queue on
    another node nothing of this is known.
    """
    told: Row = {"incoming": [], "deliveries": []}
    if not queue.is_here:
        return told
    kind = queue_type(queue.arguments)
    if kind == STREAM:
        told["readers"] = {node.name: len(queue.consumers)}
    if isinstance(queue, ClassicQueue):
        count, size = await persistent(queue)
        told |= {"messages_persistent": count, "message_bytes_persistent": size}
    if kind == QUORUM:
        dying, dying_bytes = dead_letters_under_way(queue)
        told |= {
            "messages_dlx": dying,
            "message_bytes_dlx": dying_bytes,
            "open_files": {node.name: open_files(files, queue)},
            "single_active_consumer_ctag": single_active_tag(queue),
        }
    return told


async def persistent(queue: ClassicQueue) -> Amount:
    """The messages that a restart keeps: those in the queue's logs, also those that are out with clients. The
    size is without those that basic.get took.
    """
    logs = logs_of(queue)
    segments = [segment for _, log in logs for segment in log.segments]
    count = sum([segment.alive async for segment in at_a_pace(segments)])
    if count == 0:
        return 0, 0
    if count >= queue.message_count + queue.unacked:  # all of them are: no need to look at each
        return count, queue.message_bytes + sum(each.unacked_bytes for each in consumers_on(queue))
    held = [entry.size async for entry in at_a_pace(_held(queue)) if entry.message.persistent]
    return count, sum(held) + sum(lane.log.unread_bytes for lane in queue.lanes if lane.log is not None)


def _held(queue: ClassicQueue) -> list[Entry]:
    """The messages that are in memory, in the queue or with its consumers."""
    ready = [entry for lane in queue.lanes for entries in (lane.ready, lane.strays) for entry in entries]
    consumers = consumers_on(queue)
    out = [entry for each in consumers for entry in each.deliveries.entries() if entry.consumer is each]
    return ready + out


def dead_letters_under_way(queue: Queue) -> Amount:
    """The messages that have died here, and are not safe yet where they go."""
    entries = queue.surroundings.dead_letters.under_way(queue)
    return len(entries), sum(entry.size for entry in entries)


def open_files(files: OpenFiles, queue: Queue) -> int:
    directories = {log.chain.directory.path for _, log in logs_of(queue)}
    return sum(path.rpartition("/")[0] in directories for path in files.files)
