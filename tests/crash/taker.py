"""A client that takes messages from several queues and acks them, in a thread, until the broker ends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.errors import EndedError
from tests.support.process import Address
from warren.amqp import methods as m


class Taker:
    """Gets a message and acks it, one after the other. The answer to the next basic.get says that the ack
    before it is done with; whether the last ack is, nobody knows.
    """

    def __init__(self) -> None:
        self.taken: Counter[bytes] = Counter()  # the bodies of messages that are acked for certain
        self.maybe: set[bytes] = set()  # and of those for which that is unknown
        self.thread: threading.Thread | None = None

    def start(self, address: Address, queues: Sequence[str]) -> None:
        client = AmqpClient.connect(address)
        self.thread = threading.Thread(target=self._take, args=(client, queues))
        self.thread.start()

    def join(self) -> None:
        """Wait for its end, which comes with that of the broker."""
        if self.thread is not None:
            self.thread.join()

    def _take(self, client: AmqpClient, queues: Sequence[str]) -> None:
        acked: bytes | None = None
        with closing(client.socket):
            try:
                channel = client.channel()
                while True:
                    for queue in queues:
                        acked = self._take_one(channel, queue, acked)
            except (EndedError, OSError):
                if acked is not None:
                    self.maybe.add(acked)

    def _take_one(self, channel: AmqpChannel, queue: str, acked: bytes | None) -> bytes | None:
        """Get and ack a message; `acked` is the one before."""
        got = channel.try_get(queue, no_ack=False)
        if acked is not None:
            self.taken[acked] += 1
        if got is None:
            return None
        self.maybe.add(got.body)  # if the broker ends in the next call
        channel.send(m.BasicAck(delivery_tag=got.method.delivery_tag))
        self.maybe.discard(got.body)
        return got.body
