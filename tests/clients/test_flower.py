"""Flower: its view of the broker comes from the HTTP API, its view of workers from Celery's events."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.celery_worker import CeleryCommand, Worker
from tests.support.process import BrokerProcess

QUEUE = "flower-tasks"
WAIT_SECONDS_MAX = 120

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Flower that watches a broker and its one worker. Flower tells it when it listens."""
    with BrokerProcess(tmp_path_factory.mktemp("flower") / "data") as broker:
        api = broker.http_url.replace("://", "://guest:guest@") + "/api/"
        words = ["flower", "--address=127.0.0.1", "--port=0", f"--broker_api={api}"]
        worker = Worker(broker.address, QUEUE)
        try:
            running = CeleryCommand(
                broker.address, QUEUE, words, r"http://\S+", FLOWER_UNAUTHENTICATED_API="true"
            )
            try:
                yield running.told
            finally:
                running.kill()
        finally:
            worker.stop()


def wait_for(url: str, is_there: Callable[[Any], bool]) -> Any:
    """Ask until the answer is as expected: Flower learns of workers in its own time. It asks them before it
    answers.
    """
    end = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS_MAX) as answer:  # noqa: S310 - of the fixture
            found: Any = json.load(answer)
        if is_there(found):
            return found
        assert time.monotonic() < end, f"{url}: {found!r}"


def test_flower_sees_the_worker_and_the_length_of_its_queue(flower: str) -> None:
    wait_for(
        f"{flower}/api/workers?refresh=1",
        lambda found: bool(found.get(f"worker@{QUEUE}", {}).get("active_queues")),
    )
    lengths = wait_for(f"{flower}/api/queues/length", lambda found: bool(found["active_queues"]))
    assert [(row["name"], row["messages"], row["consumers"]) for row in lengths["active_queues"]] == [
        (QUEUE, 0, 1)
    ]
