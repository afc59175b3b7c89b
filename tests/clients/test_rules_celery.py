"""Celery on the rules of queues: tasks for later, priorities, dead letters, workers that are killed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu.pools
import pytest
from amqp.exceptions import NotFound  # type: ignore[import-untyped]  # it has no types
from celery import Celery

from tests.clients.celery_rules_tasks import RESULT_EXPIRES_SECONDS, make_app, make_queue
from tests.clients.celery_worker import Worker
from tests.clients.conftest import WAIT_SECONDS_MAX, serve_until
from tests.support.process import Address

DELAY_LEVELS = 28
"""Queues and exchanges that Celery declares for tasks that are for later: one for each bit of the seconds."""


def make_worker(broker: Address, queue: str, kind: str) -> Worker:
    return Worker(broker, queue, "tests.clients.celery_rules_tasks", CLIENT_TESTS_KIND=kind)


@contextmanager
def channel_of(app: Celery) -> Iterator[Any]:
    with app.connection_for_write() as connection:
        yield connection.default_channel


def end(app: Celery) -> None:
    """Delete what it and its worker declared, and leave no connection."""
    name = app.conf.task_default_queue
    with channel_of(app) as channel:
        channel.queue_delete(name)
        channel.queue_delete(f"{name}-dead")
        channel.exchange_delete(name)
    if app.backend.result_consumer._consumer is not None:  # a test has waited for a result
        app.backend.result_consumer.stop()
    app.close()
    kombu.pools.reset()  # type: ignore[no-untyped-call]  # kombu has types in part only


def send(app: Celery, task: str, *arguments: object, **options: Any) -> Any:
    return app.tasks[task].apply_async(arguments, **options)


def result_of(pending: Any) -> Any:
    return pending.get(timeout=WAIT_SECONDS_MAX)


def ready_count(channel: Any, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).message_count
    return count


@pytest.fixture(scope="module")
def app(broker: Address) -> Iterator[Celery]:
    """With a classic queue that has priorities, and whose dead letters go to another."""
    app = make_app(f"clients-celery-{uuid.uuid4().hex}", "classic", broker.url())
    with channel_of(app) as channel:
        channel.queue_declare(f"{app.conf.task_default_queue}-dead", durable=True, auto_delete=False)
    yield app
    end(app)


@pytest.fixture(scope="module")
def worker(broker: Address, app: Celery) -> Iterator[Worker]:
    worker = make_worker(broker, app.conf.task_default_queue, "classic")
    yield worker
    assert worker.stop() == 0, "".join(worker.log)


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


@contextmanager
def busy(app: Celery, fifo: str) -> Iterator[None]:
    """The only child of the worker is busy in this block, and took nothing else."""
    pending = send(app, "wait_for_end_of", fifo)
    with Path(fifo).open("wb"):
        yield
    result_of(pending)


def next_dead_letter(app: Celery) -> tuple[str, str]:
    """The id of a task, and why it died."""
    letters: list[Any] = []
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        channel.basic_consume(f"{app.conf.task_default_queue}-dead", no_ack=True, callback=letters.append)
        serve_until(lambda: connection.drain_events(timeout=WAIT_SECONDS_MAX), lambda: bool(letters))
    [letter] = letters
    return letter.headers["id"], letter.headers["x-death"][0]["reason"]


@pytest.mark.usefixtures("worker")
def test_task_for_later_lets_others_go_first(app: Celery) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=2)
    last = send(app, "number_calls", eta=eta)
    later = send(app, "number_calls", countdown=1)
    calls = [result_of(pending) for pending in (send(app, "number_calls"), later, last)]
    assert calls == sorted(calls)


@pytest.mark.usefixtures("worker")
def test_tasks_of_higher_priority_are_run_first(app: Celery, fifo: str) -> None:
    priorities = [0, 3, 9, 3, 10, 0, 5]
    with busy(app, fifo):
        pending = [send(app, "number_calls", priority=priority) for priority in priorities]
    calls = [result_of(each) for each in pending]
    expected = sorted(range(len(priorities)), key=lambda number: -priorities[number])
    assert sorted(range(len(calls)), key=lambda number: calls[number]) == expected


@pytest.mark.usefixtures("worker")
def test_rejected_task_becomes_a_dead_letter(app: Celery) -> None:
    rejected = send(app, "reject")
    assert next_dead_letter(app) == (rejected.id, "rejected")


@pytest.mark.usefixtures("worker")
def test_task_that_waits_for_too_long_becomes_a_dead_letter(app: Celery, fifo: str) -> None:
    with busy(app, fifo):
        expired = send(app, "number_calls", expires=0.1)
        assert next_dead_letter(app) == (expired.id, "expired")


@pytest.mark.usefixtures("worker")
def test_results_that_nobody_fetches_go_with_their_queue(broker: Address, app: Celery) -> None:
    """result_expires is the queue's x-expires. A message that expires later tells that the time is over."""
    absent = make_app(app.conf.task_default_queue, "classic", broker.url())
    with channel_of(app) as channel:
        absent.backend.binding.bind(channel).declare()
        app.send_task("number_calls", reply_to=absent.thread_oid)
        serve_until(lambda: None, lambda: ready_count(channel, absent.thread_oid) == 1)
        over: list[Any] = []
        bell = channel.queue_declare(exclusive=True).queue
        channel.basic_consume(bell, no_ack=True, callback=over.append)
        late: dict[str, Any] = {"x-message-ttl": 2000 * RESULT_EXPIRES_SECONDS, "x-expires": 60_000}
        late |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": bell}
        clock = channel.queue_declare(exclusive=True, arguments=late).queue
        app.amqp.Producer(channel).publish("late", routing_key=clock)
        connection = channel.connection
        serve_until(lambda: connection.drain_events(timeout=WAIT_SECONDS_MAX), lambda: bool(over))
        with pytest.raises(NotFound):
            ready_count(channel, absent.thread_oid)
    absent.close()


def test_task_of_a_killed_worker_is_run_by_another(broker: Address, app: Celery, fifo: str) -> None:
    """On a queue of its own, so that no other worker takes it."""
    queue = make_queue(f"{app.conf.task_default_queue}-killed", "classic")
    victim = make_worker(broker, queue.name, "classic")
    try:
        pending = send(app, "hold_until_killed", fifo, queue=queue)
        opened = Path(fifo).open("wb")  # noqa: SIM115 - it is open when the task has begun
    finally:
        victim.kill()
    opened.close()
    heir = make_worker(broker, queue.name, "classic")
    try:
        assert result_of(pending) is True
    finally:
        heir.stop()
        with channel_of(app) as channel:
            channel.queue_delete(queue.name)
            channel.exchange_delete(queue.name)


# --- native delayed delivery: topics of bits, each a queue with a time limit, and quorum queues ---


@pytest.fixture
def quorum_app(broker: Address) -> Iterator[Celery]:
    app = make_app(f"clients-celery-quorum-{uuid.uuid4().hex}", "quorum", broker.url())
    yield app
    with channel_of(app) as channel:
        for level in range(DELAY_LEVELS):
            channel.queue_delete(f"celery_delayed_{level}")
            channel.exchange_delete(f"celery_delayed_{level}")
        channel.exchange_delete("celery_delayed_delivery")
    end(app)


def test_broker_keeps_tasks_that_are_for_later(broker: Address, quorum_app: Celery) -> None:
    """Three seconds are two and one: the task waits in two queues, one after the other."""
    worker = make_worker(broker, quorum_app.conf.task_default_queue, "quorum")
    try:
        pending = [send(quorum_app, "tell_how_it_came", countdown=seconds) for seconds in (3, 1, 0)]
        last, later, now = [result_of(each) for each in pending]
    finally:
        status = worker.stop()
    assert status == 0, "".join(worker.log)
    assert now["call"] < later["call"] < last["call"]
    assert now["deaths"] == []
    assert later["deaths"] == [["celery_delayed_0", "expired"]]
    assert last["deaths"] == [["celery_delayed_0", "expired"], ["celery_delayed_1", "expired"]]
    bits = ["0"] * (DELAY_LEVELS - 2)
    assert last["key"] == ".".join([*bits, "1", "1", quorum_app.conf.task_default_queue])
    assert "Failed to setup delayed delivery" not in "".join(worker.log)
