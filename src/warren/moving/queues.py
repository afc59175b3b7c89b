"""The queues of two brokers side by side: what there is to move, and what is not the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from warren.client.api import Api, Row

COLUMNS = (
    "vhost,name,type,durable,auto_delete,exclusive,arguments,"
    "messages,messages_ready,messages_unacknowledged,consumers"
)
COMPARED = ("type", "durable", "auto_delete", "arguments")
STREAM = "stream"


@dataclass(frozen=True)
class QueueInfo:
    """A queue as an HTTP API or a file of definitions describes it."""

    vhost: str
    name: str
    type: str
    """Such as classic, quorum or stream."""
    durable: bool
    """Whether it survives a restart."""
    auto_delete: bool
    """Whether it goes with its last consumer."""
    exclusive: bool = False
    """Whether it belongs to one connection."""
    arguments: Row = field(default_factory=dict)
    """As it was declared with."""
    messages: int = 0
    """As its broker counted them last; 0 if only its definition is known. So are the counts below."""
    ready: int = 0
    """Of those, messages that wait in the queue."""
    unacked: int = 0
    """Of those, messages that are out with clients."""
    consumers: int = 0

    @property
    def is_stream(self) -> bool:
        return self.type == STREAM

    @property
    def has_single_consumer(self) -> bool:
        """Whether one consumer at a time gets the messages, and the others wait."""
        return bool(self.arguments.get("x-single-active-consumer"))


def queues_of(api: Api, vhost: str | None) -> Iterator[QueueInfo]:
    for page in api.pages("queues", *(() if vhost is None else (vhost,)), query={"columns": COLUMNS}):
        yield from map(queue_of, page)


def of_vhost(definitions: Row, vhost: str) -> Row:
    """The definitions of one vhost among those of a file. Rows that name no vhost are of a file that has one
    vhost only.
    """
    return {
        kind: [row for row in rows if row.get("vhost", vhost) == vhost] if isinstance(rows, list) else rows
        for kind, rows in definitions.items()
    }


def queues_in(definitions: Row, vhost: str | None) -> Iterator[QueueInfo]:
    """The queues of a file of definitions. The export of a single vhost does not name the vhost."""
    for row in definitions.get("queues") or []:
        queue = queue_of({"vhost": vhost or "/"} | row)
        if vhost is None or queue.vhost == vhost:
            yield queue


def queue_of(row: Row) -> QueueInfo:
    arguments = row.get("arguments") or {}
    return QueueInfo(
        vhost=row["vhost"],
        name=row["name"],
        type=row.get("type") or arguments.get("x-queue-type", "classic"),
        durable=bool(row.get("durable")),
        auto_delete=bool(row.get("auto_delete")),
        exclusive=bool(row.get("exclusive")),
        arguments=arguments,
        messages=row.get("messages") or 0,
        ready=row.get("messages_ready") or 0,
        unacked=row.get("messages_unacknowledged") or 0,
        consumers=row.get("consumers") or 0,
    )


def differences(there: QueueInfo, here: QueueInfo | None) -> list[str]:
    """What is not the same about a queue, in words."""
    if here is None:
        return ["is not here"]
    found = []
    for name in COMPARED:
        old, new = getattr(there, name), getattr(here, name)
        if old != new:
            found.append(f"{name} {old} there, {new} here")
    return found


def by_name(queues: Iterable[QueueInfo]) -> dict[tuple[str, str], QueueInfo]:
    return {(queue.vhost, queue.name): queue for queue in queues}
