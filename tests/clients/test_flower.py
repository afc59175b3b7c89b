"""Flower: its view of the broker comes from the HTTP API, its view of workers from Celery's events."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.celery_worker import ROOT, Worker
from tests.support.process import BrokerProcess

QUEUE = "flower-tasks"
WAIT_SECONDS_MAX = 120

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Flower that watches a broker and its one worker."""
    directory = tmp_path_factory.mktemp("flower")
    with BrokerProcess(directory / "data") as broker:
        worker = Worker(broker.address, QUEUE)
        api = broker.http_url.replace("://", "://guest:guest@") + "/api/"
        port = free_port()
        with (directory / "flower.log").open("w") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "tests.clients.celery_tasks", "flower"),
                    *("--address=127.0.0.1", f"--port={port}", f"--broker_api={api}"),
                ],
                cwd=ROOT,
                env={
                    **os.environ,
                    "CELERY_BROKER_URL": broker.address.url(),
                    "CLIENT_TESTS_QUEUE": QUEUE,
                    "FLOWER_UNAUTHENTICATED_API": "true",
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
            worker.stop()


def free_port() -> int:
    """Flower takes no port 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=WAIT_SECONDS_MAX) as answer:  # noqa: S310 - of the fixture
        return json.load(answer)


def wait_for(url: str, is_there: Callable[[Any], bool]) -> Any:
    """Ask until the answer is as expected: Flower starts, and learns of workers, in its own time."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        try:
            found: Any = ask(url)
        except (urllib.error.URLError, ConnectionError) as error:
            found = error
        else:
            if is_there(found):
                return found
        assert time.monotonic() < end, f"{url}: {found!r}"
        time.sleep(0.5)


def test_flower_sees_the_worker_and_the_length_of_its_queue(flower: str) -> None:
    wait_for(f"{flower}/api/workers?refresh=1", lambda found: f"worker@{QUEUE}" in found)
    lengths = wait_for(f"{flower}/api/queues/length", lambda found: bool(found["active_queues"]))
    assert [(row["name"], row["messages"], row["consumers"]) for row in lengths["active_queues"]] == [
        (QUEUE, 0, 1)
    ]
