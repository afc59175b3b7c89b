"""Celery: tasks that run in a worker, with a retry, and with results that come back through the broker.

    pip install celery
    python examples/celery_tasks.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

Celery needs nothing but the broker's URL. The program starts a worker, sends tasks to it, prints their
results, and stops the worker. In real life the worker runs on its own, in the directory of this file:
`celery --app celery_tasks worker`. The program prints:

    2 + 3 = 5
    doubled: [0, 2, 4, 6, 8]
    fetched at attempt 3
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from celery import Celery, group

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
WAIT_SECONDS_MAX = 100

app = Celery("celery_tasks", broker=URL, backend="rpc://")
app.conf.update(
    task_default_queue="example.celery",
    task_acks_late=True,  # a task whose worker dies goes to another worker
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
)


@app.task
def add(left, right):
    return left + right


@app.task(bind=True, max_retries=5)
def fetch(self):
    """Fails twice, as a server may that is asked for something."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return f"fetched at attempt {self.request.retries + 1}"


def main() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "--app", "celery_tasks", "worker", "--concurrency", "1"],
        cwd=Path(__file__).parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        print(f"2 + 3 = {add.delay(2, 3).get(timeout=WAIT_SECONDS_MAX)}")
        doubled = group(add.s(number, number) for number in range(5))()
        print(f"doubled: {doubled.get(timeout=WAIT_SECONDS_MAX)}")
        print(fetch.delay().get(timeout=WAIT_SECONDS_MAX))
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(WAIT_SECONDS_MAX)


if __name__ == "__main__":
    main()
