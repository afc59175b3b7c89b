"""Retry with backoff: a task that fails comes back later and later, and ends in a queue of dead letters.

    pip install pika
    python examples/retry_with_backoff.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

The broker does the waiting. A message that is rejected with `requeue=True` comes back after 100 ms, the
next time after 200 ms, then after 400 ms, and meanwhile the consumer gets other messages. A message that
was returned more often than `x-delivery-limit` goes to the dead-letter exchange, with the reason in its
headers. The program prints each attempt, such as `broken: attempt 2, 0.10 s after the one before`, and
ends with:

    flaky: done at attempt 3
    broken: dead, because of delivery_limit
"""

import os
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
QUEUE, DEAD = "example.retry", "example.retry.dead"
RULES = {
    "x-retry-delay-min": 100,  # milliseconds; twice as many each time
    "x-retry-delay-max": 10_000,
    "x-delivery-limit": 3,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": DEAD,
}
WAIT_SECONDS_MAX = 60


def work(task: str, attempt: int) -> None:
    """Fails twice for `flaky`, and always for `broken`."""
    if task == "broken" or attempt < 3:
        raise RuntimeError(f"{task} has failed")


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        for queue, rules in ((DEAD, {}), (QUEUE, RULES)):
            channel.queue_delete(queue)  # an earlier run has left it
            channel.queue_declare(queue, durable=True, arguments=rules)
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        for task in ("flaky", "broken"):
            channel.basic_publish("", QUEUE, task.encode(), persistent)

        left = {"flaky", "broken"}
        last_attempt: dict[str, float] = {}

        def on_task(channel, method, properties, body) -> None:
            task = body.decode()
            attempt = 1 + (properties.headers or {}).get("x-delivery-count", 0)
            now = time.monotonic()
            waited = (
                f", {now - last_attempt[task]:.2f} s after the one before" if task in last_attempt else ""
            )
            last_attempt[task] = now
            print(f"{task}: attempt {attempt}{waited}")
            try:
                work(task, attempt)
            except RuntimeError:
                channel.basic_nack(method.delivery_tag, requeue=True)
            else:
                channel.basic_ack(method.delivery_tag)
                print(f"{task}: done at attempt {attempt}")
                left.remove(task)

        def on_dead_letter(channel, method, properties, body) -> None:
            death = properties.headers["x-death"][0]
            print(f"{body.decode()}: dead, because of {death['reason']}")
            channel.basic_ack(method.delivery_tag)
            left.remove(body.decode())

        channel.basic_consume(QUEUE, on_task)
        channel.basic_consume(DEAD, on_dead_letter)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while left and time.monotonic() < deadline:
            connection.process_data_events(time_limit=1)
        if left:
            raise SystemExit(f"not done in time: {left}")


if __name__ == "__main__":
    main()
