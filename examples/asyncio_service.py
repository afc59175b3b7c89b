"""An asyncio service: it takes orders from a queue, handles several at once, and publishes what has happened.

    pip install aio-pika
    python examples/asyncio_service.py

AMQP_URL names the broker; without it, the program uses the one on this machine.

The connection is a robust one: it is opened again when the broker restarts. The service handles five
orders at a time, since the broker delivers no more than `prefetch_count` that are not acknowledged. It
acknowledges an order when the event about it is confirmed, so that a crash loses neither. SIGTERM and
Ctrl-C end the service when the orders that it has begun are done. Here a shop sends ten orders, waits for
their events and stops the service:

    order 0 is paid
    …
    10 orders handled, 5 at a time
"""

import asyncio
import os
import signal

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
ORDERS, EVENTS = "example.orders", "example.events"
ORDERS_SENT = 10
ORDERS_AT_ONCE_MAX = 5
WAIT_SECONDS_MAX = 60


class Service:
    """Handles orders until it is told to stop."""

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()
        self.is_stopping = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self.under_way = 0
        self.under_way_most = 0
        self.handled = 0

    async def run(self) -> None:
        async with await aio_pika.connect_robust(URL) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=ORDERS_AT_ONCE_MAX)
            self.events = await declare_events(channel)
            queue = await channel.declare_queue(ORDERS, durable=True)
            tag = await queue.consume(self.on_order)
            self.is_ready.set()
            await self.is_stopping.wait()
            await queue.cancel(tag)
            await self.is_idle.wait()

    async def on_order(self, order: AbstractIncomingMessage) -> None:
        self.is_idle.clear()
        self.under_way += 1
        self.under_way_most = max(self.under_way, self.under_way_most)
        try:
            async with order.process():  # acknowledges in the end, or rejects if something is raised
                await self.handle(order.body)
        finally:
            self.under_way -= 1
            if not self.under_way:
                self.is_idle.set()

    async def handle(self, order: bytes) -> None:
        await asyncio.sleep(0.05)  # this is the place for the work itself
        event = aio_pika.Message(order + b" is paid", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self.events.publish(event, "order.paid", mandatory=False)
        self.handled += 1


async def declare_events(channel: AbstractChannel) -> AbstractExchange:
    return await channel.declare_exchange(EVENTS, aio_pika.ExchangeType.TOPIC, durable=True)


async def shop() -> None:
    """Sends orders, and prints the events about them."""
    async with asyncio.timeout(WAIT_SECONDS_MAX), await aio_pika.connect_robust(URL) as connection:
        channel = await connection.channel()
        inbox = await channel.declare_queue(exclusive=True)
        await inbox.bind(await declare_events(channel), "order.*")
        for number in range(ORDERS_SENT):
            order = aio_pika.Message(b"order %d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(order, ORDERS)
        left = ORDERS_SENT
        async with inbox.iterator(no_ack=True) as events:
            async for event in events:
                print(event.body.decode())
                left -= 1
                if not left:
                    break


async def main() -> None:
    service = Service()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, service.is_stopping.set)
    async with asyncio.TaskGroup() as programs:
        programs.create_task(service.run())
        await service.is_ready.wait()
        await shop()
        service.is_stopping.set()
    print(f"{service.handled} orders handled, {service.under_way_most} at a time")


if __name__ == "__main__":
    asyncio.run(main())
