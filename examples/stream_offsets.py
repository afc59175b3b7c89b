"""A stream with offsets: readers take nothing away, and each goes on where it stopped.

    pip install pika
    python examples/stream_offsets.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

A stream keeps its messages, and every consumer reads all of them, from the offset it asks for. With
`x-stream-automatic-offset-tracking` the broker remembers under the consumer's tag how far it has
acknowledged; the next consumer of that tag goes on behind that, after a restart of either side as well.
The program prints:

    billing reads offsets 0 to 3
    billing reads offsets 4 to 9
    audit reads offsets 0 to 9
    offset 7 is event 7
"""

import os
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
STREAM = "example.stream"
EVENTS = 10
WAIT_SECONDS_MAX = 60


def publish_events() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_delete(STREAM)  # an earlier run has left it
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
        channel.confirm_delivery()
        for number in range(EVENTS):
            channel.basic_publish("", STREAM, f"event {number}".encode())


def read(count: int, arguments: dict[str, object], name: str | None = None) -> list[tuple[int, str]]:
    """So many messages with their offsets, read on a connection of its own, as another program would."""
    taken: list[tuple[int, str]] = []

    def on_event(channel, method, properties, body) -> None:
        if len(taken) < count:
            taken.append((properties.headers["x-stream-offset"], body.decode()))
            channel.basic_ack(method.delivery_tag)

    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        channel.basic_consume(STREAM, on_event, consumer_tag=name, arguments=arguments)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while len(taken) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(taken)} of {count} messages within {WAIT_SECONDS_MAX} s")
            connection.process_data_events(time_limit=1)
    # The connection is closed without `basic_cancel`, in which pika rejects the messages that it still holds.
    # A stream takes a rejected message as read, and the next reader of this name would not get it.
    return taken


def main() -> None:
    publish_events()
    goes_on = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
    for count in (4, 6):
        offsets = [offset for offset, _ in read(count, goes_on, "billing")]
        print(f"billing reads offsets {offsets[0]} to {offsets[-1]}")
    offsets = [offset for offset, _ in read(EVENTS, {"x-stream-offset": "first"})]
    print(f"audit reads offsets {offsets[0]} to {offsets[-1]}")
    [(offset, event)] = read(1, {"x-stream-offset": 7})
    print(f"offset {offset} is {event}")


if __name__ == "__main__":
    main()
