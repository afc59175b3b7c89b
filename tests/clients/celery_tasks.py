"""The tasks that test_celery.py sends, and that its worker runs in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from celery import Celery

app = Celery("tasks", backend="rpc://")
app.conf.update(
    # The broker's address reaches the worker as CELERY_BROKER_URL, which Celery reads itself.
    task_default_queue=os.environ.get("CLIENT_TESTS_QUEUE", "celery"),
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
)


def task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`app.task`, which has no types."""
    return lambda function: app.task(function, **options)


@task()
def add(left: int, right: int) -> int:
    return left + right


@task()
def echo(value: Any) -> Any:
    return value


@task()
def fail(text: str) -> None:
    raise ValueError(text)


@task(bind=True, max_retries=5)
def succeed_on_third_try(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    tries: int = self.request.retries + 1
    return tries


@task(bind=True, acks_late=True, reject_on_worker_lost=True)
def kill_own_process_once(self: Any) -> bool:
    redelivered: bool = self.request.delivery_info["redelivered"]
    if not redelivered:
        os.kill(os.getpid(), signal.SIGKILL)
    return redelivered
