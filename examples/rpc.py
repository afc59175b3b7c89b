"""RPC by direct reply-to: a client calls a server through the broker, and no queue is made for the replies.

    pip install pika
    python examples/rpc.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

The client consumes from the pseudo-queue `amq.rabbitmq.reply-to` and names it in `reply_to` of each
request. The broker puts a name in its place by which the server's reply finds this channel.
`correlation_id` says which request a reply belongs to. Requests expire, so that the server never works
for a client that has given up. The program prints:

    fibonacci(10) = 55
    fibonacci(20) = 6765
    fibonacci(30) = 832040
"""

import os
import threading
import time
import uuid
from typing import Self

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
QUEUE = "example.rpc"
REPLY_TO = "amq.rabbitmq.reply-to"
CALL_SECONDS_MAX = 60


def fibonacci(number: int) -> int:
    last, current = 0, 1
    for _ in range(number):
        last, current = current, last + current
    return last


class Server(threading.Thread):
    """Answers requests. In real life this is a program of its own, of which there may be many."""

    def __init__(self) -> None:
        super().__init__(name="server")
        self.connection = pika.BlockingConnection(pika.URLParameters(URL))
        self.channel = self.connection.channel()
        self.channel.queue_declare(QUEUE, auto_delete=True)

    def run(self) -> None:
        self.channel.basic_qos(prefetch_count=1)
        for method, request, body in self.channel.consume(QUEUE):
            reply = pika.BasicProperties(correlation_id=request.correlation_id)
            self.channel.basic_publish("", request.reply_to, str(fibonacci(int(body))).encode(), reply)
            self.channel.basic_ack(method.delivery_tag)

    def stop(self) -> None:
        self.connection.add_callback_threadsafe(self.channel.cancel)
        self.join()
        self.connection.close()


class Client:
    """Calls the server, one request at a time."""

    def __init__(self) -> None:
        self.replies: dict[str, bytes] = {}  # by the id of the request
        self.connection = pika.BlockingConnection(pika.URLParameters(URL))
        self.channel = self.connection.channel()
        self.channel.basic_consume(REPLY_TO, self.on_reply, auto_ack=True)

    def on_reply(self, channel, method, reply, body) -> None:
        self.replies[reply.correlation_id] = body

    def call(self, number: int) -> int:
        request = pika.BasicProperties(
            reply_to=REPLY_TO,
            correlation_id=str(uuid.uuid4()),
            expiration=str(CALL_SECONDS_MAX * 1000),
        )
        self.channel.basic_publish("", QUEUE, str(number).encode(), request)
        deadline = time.monotonic() + CALL_SECONDS_MAX
        while request.correlation_id not in self.replies:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no reply within {CALL_SECONDS_MAX} s")
            self.connection.process_data_events(time_limit=1)
        return int(self.replies.pop(request.correlation_id))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()


def main() -> None:
    server = Server()
    server.start()
    with Client() as client:
        for number in (10, 20, 30):
            print(f"fibonacci({number}) = {client.call(number)}")
    server.stop()


if __name__ == "__main__":
    main()
