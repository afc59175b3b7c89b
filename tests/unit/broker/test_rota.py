"""The line of queues that deliver to a channel with one limit for all its consumers."""

from __future__ import annotations

from warren.broker.rota import Rota


class Waiting:
    """A queue with some messages for the channel of a rota."""

    def __init__(self, rota: Rota, messages: int) -> None:
        self.rota = rota
        self.messages = messages
        self.has_room = False

    def drain(self) -> None:
        while self.messages and self.rota.admits(self, self.has_room):
            self.messages -= 1
            self.rota.took(self)


def test_queues_that_others_have_emptied_do_not_keep_the_last_one_waiting() -> None:
    rota = Rota([])
    queues = [Waiting(rota, 1) for _ in range(5)]
    for queue in queues:
        queue.drain()  # the channel is full, so all of them join the line
        queue.has_room = True
    for queue in queues[:-1]:
        queue.messages = 0
    rota.drain()
    assert queues[-1].messages == 0
    assert not rota.line
