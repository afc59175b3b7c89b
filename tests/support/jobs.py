"""Jobs that move, copy or delete messages, as tests ask for them."""

from __future__ import annotations

from warren.broker.message_job import JobOrder, Kind, MessageJob
from warren.broker.node import Node
from warren.broker.selector import compile_selector


def start_job(
    node: Node,
    kind: Kind,
    source: str,
    target: str | None = None,
    *,
    selector: str | None = None,
    count: int | None = None,
) -> MessageJob:
    """Start a job in the vhost `/`. It goes on when the event loop does."""
    queues = node.vhosts["/"].queues
    order = JobOrder(
        kind=kind,
        source=queues[source],
        target=None if target is None else queues[target],
        selector=None if selector is None else compile_selector(selector),
        count_max=count,
    )
    job = MessageJob(order, node.store, is_blocked=lambda: bool(node.alarms), ended=lambda: None)
    job.start()
    return job
