"""The tasks that test_rules_celery.py sends. The queue is a classic one with priorities and dead letters, or
a quorum queue, with which Celery lets the broker keep the tasks that are for later.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject
from kombu.entity import Exchange, Queue

PRIORITY_MAX = 10
RESULT_EXPIRES_SECONDS = 1

calls = count()


def number_calls() -> int:
    """How many calls there were before, in the one process that runs them."""
    return next(calls)


def wait_for_end_of(fifo: str) -> None:
    """Begun when somebody could open it for writing, ended when that is closed."""
    Path(fifo).read_bytes()


def hold_until_killed(self: Any, fifo: str) -> bool:
    redelivered: bool = self.request.delivery_info["redelivered"]
    if not redelivered:
        Path(fifo).read_bytes()
    return redelivered


def reject(self: Any) -> None:
    raise Reject("not wanted", requeue=False)


def tell_how_it_came(self: Any) -> dict[str, Any]:
    deaths = self.request.get("x-death") or []
    return {
        "call": next(calls),
        "key": self.request.delivery_info["routing_key"],
        "deaths": [[death["queue"], death["reason"]] for death in deaths],
    }


def make_queue(name: str, kind: str) -> Any:
    if kind == "quorum":
        return declared(name, "topic", {"x-queue-type": "quorum"})
    arguments = {
        "x-max-priority": PRIORITY_MAX,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{name}-dead",
    }
    return declared(name, "direct", arguments)


def declared(name: str, exchange_type: str, arguments: dict[str, Any]) -> Any:
    """A queue, and an exchange of the same name that it is bound to."""
    exchange = Exchange(name, exchange_type)  # type: ignore[no-untyped-call]  # kombu has types in part only
    return Queue(name, exchange, name, queue_arguments=arguments)  # type: ignore[no-untyped-call]


def make_app(name: str, kind: str, broker_url: str | None = None) -> Celery:
    app = Celery("rules", backend="rpc://", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_queues=[make_queue(name, kind)],
        task_default_queue=name,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        result_expires=RESULT_EXPIRES_SECONDS,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
    )
    for function in (number_calls, wait_for_end_of):
        app.task(function, name=function.__name__)
    for bound in (hold_until_killed, reject, tell_how_it_came):
        app.task(bound, name=bound.__name__, bind=True)
    return app


if "CLIENT_TESTS_KIND" in os.environ:
    app = make_app(os.environ["CLIENT_TESTS_QUEUE"], os.environ["CLIENT_TESTS_KIND"])
