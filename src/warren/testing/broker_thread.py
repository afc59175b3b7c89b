"""A broker in a thread, on an event loop of its own, so that tests can use blocking clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar

import warren
from warren.broker.access import Permissions

T = TypeVar("T")
GUEST = "guest"  # user and password of a new broker
ALL = Permissions(configure=".*", write=".*", read=".*")


@dataclass(frozen=True)
class RoomInBroker:
    """A vhost of a running broker, empty at first."""

    host: str
    port: int
    vhost: str
    user: str = GUEST
    password: str = GUEST

    @property
    def url(self) -> str:
        """For any client: `pika.URLParameters(url)`, `aio_pika.connect(url)`, Celery's `broker_url`."""
        return f"amqp://{self.user}:{self.password}@{self.host}:{self.port}/{self.vhost}"


class BrokerThread:
    """A context manager: the broker runs inside it, on a port that the kernel chooses. `settings` are those
    of `warren.Config`.
    """

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        self.broker = warren.Broker(data_dir=data_dir, port=0, **settings)
        self.numbers = count(1)  # of the rooms
        self.ready: Future[asyncio.AbstractEventLoop] = Future()  # has the loop once the broker has started
        self.thread = threading.Thread(target=self._run_loop, name="warren-broker", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        self.loop = self.ready.result()
        return self

    def __exit__(self, *error: object) -> None:
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join()

    def _run_loop(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self.over = asyncio.Event()
        try:
            await self.broker.start()
        except BaseException as error:  # noqa: BLE001 - `__enter__` raises it
            self.ready.set_exception(error)
            return
        self.ready.set_result(asyncio.get_running_loop())
        await self.over.wait()
        await self.broker.stop()

    def call(self, work: Callable[[warren.Broker], T]) -> T:
        """Call a function with the broker, on the broker's event loop:
        `call(lambda broker: broker.execute(command))`.
        """

        async def do() -> T:
            return work(self.broker)

        return asyncio.run_coroutine_threadsafe(do(), self.loop).result()

    @contextmanager
    def room(self) -> Iterator[RoomInBroker]:
        """A new vhost, which is deleted at the end with all that is in it."""
        name = f"test-{next(self.numbers)}"
        self.call(lambda broker: _open(broker, name))
        try:
            yield RoomInBroker(self.broker.host, self.broker.port, name)
        finally:
            self.call(lambda broker: broker.execute(warren.commands.DeleteVhost(name=name)))


def _open(broker: warren.Broker, vhost: str) -> None:
    broker.execute(warren.commands.AddVhost(name=vhost))
    broker.execute(warren.commands.SetPermissions(user=GUEST, vhost=vhost, permissions=ALL))
