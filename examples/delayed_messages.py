"""Delayed messages: each is published now and delivered later, after a delay or at a time of day.

    pip install pika
    python examples/delayed_messages.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

An exchange of type `x-delayed-message` keeps each message for the milliseconds in its header `x-delay`,
or until the time in `x-deliver-at`, and then routes it as an exchange of the type in `x-delayed-type`
does. What waits is on disk and survives a restart of the broker; the delay may be years. The program
prints:

    after 0.00 s: welcome
    after 0.50 s: did you find everything?
    after 1.00 s: your cart is waiting
"""

import os
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
EXCHANGE, QUEUE = "example.delayed", "example.reminders"
WAIT_SECONDS_MAX = 60


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.exchange_declare(
            EXCHANGE, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        channel.queue_delete(QUEUE)  # an earlier run has left it
        channel.queue_declare(QUEUE, durable=True)
        channel.queue_bind(QUEUE, EXCHANGE, "reminder")
        channel.confirm_delivery()

        published_at = time.time()
        in_a_second = int((published_at + 1) * 1000)
        for text, headers in (
            ("your cart is waiting", {"x-deliver-at": in_a_second}),
            ("did you find everything?", {"x-delay": 500}),
            ("welcome", {"x-delay": 0}),
        ):
            properties = pika.BasicProperties(headers=headers, delivery_mode=pika.DeliveryMode.Persistent)
            channel.basic_publish(EXCHANGE, "reminder", text.encode(), properties)

        left = 3
        for method, _, body in channel.consume(QUEUE, inactivity_timeout=WAIT_SECONDS_MAX):
            if method is None:
                raise TimeoutError(f"no message within {WAIT_SECONDS_MAX} s")
            channel.basic_ack(method.delivery_tag)
            print(f"after {time.time() - published_at:.2f} s: {body.decode()}")
            left -= 1
            if not left:
                break


if __name__ == "__main__":
    main()
