"""A work queue: tasks are shared out between two workers, and a task is not lost when a worker dies.

    pip install pika
    python examples/work_queue.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

The queue is durable, the tasks are persistent, and the publisher waits for confirms: once `basic_publish`
has returned, the task survives a crash of the broker. Each worker takes one task at a time, and
acknowledges the task when the work is done. One more worker takes a task and dies; the broker gives that
task to another one. The program prints who did which task, and ends with:

    10 tasks done, 1 of them after a worker had died with it
"""

import os
import queue
import threading

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
QUEUE = "example.work"
TASKS = 10
WAIT_SECONDS_MAX = 60


def publish_tasks() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_delete(QUEUE)  # an earlier run has left it
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        for number in range(TASKS):
            channel.basic_publish("", QUEUE, f"task {number}".encode(), persistent, mandatory=True)


def take_a_task_and_die() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        _, _, body = connection.channel().basic_get(QUEUE)
        print(f"a worker took {body.decode()} and died")


class Worker(threading.Thread):
    """Works in a thread with a connection of its own, since a connection of pika belongs to one thread."""

    def __init__(self, name: str, done: queue.Queue[tuple[str, str, bool]]) -> None:
        super().__init__(name=name)
        self.done = done
        self.connection = pika.BlockingConnection(pika.URLParameters(URL))
        self.channel = self.connection.channel()

    def run(self) -> None:
        self.channel.basic_qos(prefetch_count=1)
        for method, _, body in self.channel.consume(QUEUE):
            # This is the place for the work itself.
            self.channel.basic_ack(method.delivery_tag)
            self.done.put((self.name, body.decode(), method.redelivered))

    def stop(self) -> None:
        self.connection.add_callback_threadsafe(self.channel.cancel)
        self.join()
        self.connection.close()


def main() -> None:
    publish_tasks()
    take_a_task_and_die()
    done: queue.Queue[tuple[str, str, bool]] = queue.Queue()
    workers = [Worker("worker 1", done), Worker("worker 2", done)]
    for worker in workers:
        worker.start()
    redelivered = 0
    for _ in range(TASKS):
        name, task, again = done.get(timeout=WAIT_SECONDS_MAX)
        redelivered += again
        print(f"{name} did {task}")
    for worker in workers:
        worker.stop()
    print(f"{TASKS} tasks done, {redelivered} of them after a worker had died with it")


if __name__ == "__main__":
    main()
