"""Message groups: what happens to one customer is handled in order, and different customers in parallel.

    pip install pika
    python examples/message_groups.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

With `x-group-header` the broker looks at that header of each message. Messages with the same value go to
one consumer at a time and in order, and groups are spread over the consumers. When a consumer goes, its
groups move to the others. The program prints what came of each customer, and how many messages each
consumer had:

    ada: created, paid, packed, sent
    bela: created, paid, packed, sent
    cleo: created, paid, packed, sent
    dora: created, paid, packed, sent
    consumer 1 had 8, consumer 2 had 8
"""

import os
import time
from collections import defaultdict

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
QUEUE = "example.groups"
CUSTOMERS = ("ada", "bela", "cleo", "dora")
STEPS = ("created", "paid", "packed", "sent")
WAIT_SECONDS_MAX = 60


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        publisher = connection.channel()
        publisher.queue_delete(QUEUE)  # an earlier run has left it
        publisher.queue_declare(QUEUE, durable=True, arguments={"x-group-header": "customer"})

        handled: defaultdict[str, list[str]] = defaultdict(list)
        counts = {"consumer 1": 0, "consumer 2": 0}

        def on_step(channel, method, properties, body) -> None:
            customer = properties.headers["customer"]
            handled[customer].append(body.decode())
            counts[method.consumer_tag] += 1
            channel.basic_ack(method.delivery_tag)

        for consumer in counts:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(QUEUE, on_step, consumer_tag=consumer)
        for step in STEPS:
            for customer in CUSTOMERS:
                publisher.basic_publish(
                    "", QUEUE, step.encode(), pika.BasicProperties(headers={"customer": customer})
                )

        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while sum(counts.values()) < len(CUSTOMERS) * len(STEPS):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all steps came within {WAIT_SECONDS_MAX} s")
            connection.process_data_events(time_limit=1)
        for customer in CUSTOMERS:
            print(f"{customer}: {', '.join(handled[customer])}")
        print(", ".join(f"{consumer} had {count}" for consumer, count in counts.items()))


if __name__ == "__main__":
    main()
