"""Celery with a real worker process: tasks, results through rpc://, retries, late acks, remote control."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import kombu.pools
import pytest
from celery import chain, group

from tests.clients import celery_tasks as tasks
from tests.clients.celery_worker import Worker
from tests.clients.conftest import WAIT_SECONDS_MAX
from tests.support.process import Address


@pytest.fixture(scope="module")
def queue(broker: Address) -> Iterator[str]:
    """The queue of this module's tasks; Celery declares it, with an exchange of the same name."""
    name = f"clients-celery-{uuid.uuid4().hex}"
    tasks.app.conf.update(broker_url=broker.url(), task_default_queue=name)
    yield name
    with tasks.app.connection_for_write() as connection:
        connection.default_channel.queue_delete(name)
        connection.default_channel.exchange_delete(name)
    tasks.app.backend.result_consumer.stop()
    tasks.app.close()
    kombu.pools.reset()  # type: ignore[no-untyped-call]  # kombu has types in part only


@pytest.fixture(scope="module")
def worker(broker: Address, queue: str) -> Iterator[Worker]:
    worker = Worker(broker, queue)
    yield worker
    assert worker.stop() == 0, "".join(worker.log)


def result_of(pending: Any) -> Any:
    return pending.get(timeout=WAIT_SECONDS_MAX)


def queue_counts(queue: str) -> tuple[int, int]:
    """Ready messages and consumers."""
    with tasks.app.connection_for_read() as connection:
        declared = connection.default_channel.queue_declare(queue, passive=True)
        return declared.message_count, declared.consumer_count


@pytest.mark.usefixtures("worker")
def test_task_returns_its_result() -> None:
    assert result_of(tasks.add.delay(2, 3)) == 5


@pytest.mark.usefixtures("worker")
def test_many_tasks_each_get_their_own_result() -> None:
    pending = [tasks.add.delay(number, number) for number in range(100)]
    assert [result_of(each) for each in pending] == [2 * number for number in range(100)]


@pytest.mark.usefixtures("worker")
def test_large_arguments_and_results_pass() -> None:
    value = {"text": "żółw" * 300_000, "nested": [{"a": None}]}
    assert result_of(tasks.echo.delay(value)) == value


@pytest.mark.usefixtures("worker")
def test_exception_of_a_task_is_raised_where_its_result_is_read() -> None:
    with pytest.raises(ValueError, match="as expected"):
        result_of(tasks.fail.delay("as expected"))


@pytest.mark.usefixtures("worker")
def test_retried_task_runs_until_it_succeeds() -> None:
    assert result_of(tasks.succeed_on_third_try.delay()) == 3


@pytest.mark.usefixtures("worker")
def test_chain_passes_results_on() -> None:
    assert result_of(chain(tasks.add.s(1, 2), tasks.add.s(10), tasks.echo.s())()) == 13


@pytest.mark.usefixtures("worker")
def test_group_collects_all_results() -> None:
    assert result_of(group(tasks.add.s(number, 1) for number in range(10))()) == list(range(1, 11))


@pytest.mark.usefixtures("worker")
def test_late_acknowledged_task_is_redelivered_when_its_process_dies() -> None:
    assert result_of(tasks.kill_own_process_once.delay()) is True


def test_remote_control_reaches_the_worker_and_brings_its_answer(worker: Worker) -> None:
    replies = tasks.app.control.ping(destination=[worker.name], timeout=WAIT_SECONDS_MAX, limit=1)
    assert replies == [{worker.name: {"ok": "pong"}}]


def test_running_worker_consumes_and_acknowledges_its_tasks(worker: Worker) -> None:
    result_of(tasks.add.delay(1, 1))
    assert queue_counts(worker.queue) == (0, 1)


def test_stopped_worker_leaves_with_status_zero_and_no_consumer(broker: Address, queue: str) -> None:
    short_lived = Worker(broker, f"{queue}-short")
    assert short_lived.stop() == 0
    tasks.add.apply_async((1, 1), queue=short_lived.queue)
    assert queue_counts(short_lived.queue) == (1, 0)
    with tasks.app.connection_for_write() as connection:
        connection.default_channel.queue_delete(short_lived.queue)
        connection.default_channel.exchange_delete(short_lived.queue)
