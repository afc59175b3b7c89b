"""Two nodes or three that send each other letters, without links, disks or clocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.support.rounds import Rounds
from warren.broker.message import Message
from warren.broker.outcome import ON_ITS_WAY, REFUSED
from warren.broker.safety import Safety
from warren.cluster.config import RunId, StoreId
from warren.cluster.letter_inbox import LetterReceiver
from warren.cluster.letters import LetterSender, Line, Way
from warren.cluster.messages import Letters, LettersDone

QUEUE, VHOST, NAME = 640, "/", "q"
SENDER = StoreId("sender")


def message(number: int, size: int = 0) -> Message:
    return Message(b"\0", b"\1q", b"\0\0", b"%d" % number + bytes(size), True)


class LedQueue:
    """The queue in one term of its leader."""

    def __init__(self) -> None:
        self.rounds = Rounds()
        self.safety: Safety | None = self.rounds
        self.deleted = False
        self.bodies: list[int] = []
        self.synced = 0  # how many of them the next leader has, whoever that is
        self.refuses: set[int] = set()

    def publish(self, letter: Message) -> int:
        number = int(letter.body.rstrip(b"\0"))
        if number in self.refuses:
            return REFUSED
        self.bodies.append(number)
        return ON_ITS_WAY

    def commit(self) -> None:
        """All that has come is safe."""
        self.synced = len(self.bodies)
        self.rounds.begin_next()
        self.rounds.end(self.rounds.gathering - 1)

    def end(self) -> list[int]:
        """The term is over. Return what is left."""
        self.deleted = True
        self.rounds.end_term()
        return self.bodies[: self.synced]


class Receiver:
    def __init__(self, store: StoreId) -> None:
        self.store = store
        self.queue: LedQueue | None = None  # while it leads
        self.letters = LetterReceiver(lambda _: self.queue, lambda: 0)


class Cluster:
    """One sender, several nodes that may lead the queue, and the links between them: in order, as long as
    they last.
    """

    def __init__(self, *stores: str) -> None:
        self.now = 0.0
        self.later: deque[Callable[[], None]] = deque()
        self.epoch = 0
        self.leader: Receiver | None = None
        self.kept: list[int] = []  # what the terms before have left in the queue
        self.sender = LetterSender(self._find, iter(range(1, 1000)).__next__, self.later.append, self._work)
        self.receivers = {StoreId(store): Receiver(StoreId(store)) for store in stores}
        self.there: dict[StoreId, deque[Letters]] = {store: deque() for store in self.receivers}
        self.back: dict[StoreId, deque[LettersDone]] = {store: deque() for store in self.receivers}
        self.has_work = False
        self.frames = 0

    def _work(self) -> None:
        self.has_work = True

    def _find(self, _line: Line) -> Way | None:
        return None if self.leader is None else Way(self.leader.store, self.epoch)

    def open(self) -> Line:
        return self.sender.open(QUEUE, VHOST, NAME)

    # --- links ---

    def link_up(self, store: StoreId) -> None:
        """From the sender to this node."""
        self.there[store].clear()
        self.sender.link_up(store, self.now)
        self.collect()

    def link_down(self, store: StoreId) -> None:
        self.there[store].clear()
        self.sender.link_down(store)

    def link_back_up(self, store: StoreId) -> None:
        """From this node to the sender: what was on its way is lost."""
        self.back[store].clear()
        self.receivers[store].letters.link_up(SENDER, RunId("run"))
        self.collect()

    def collect(self) -> None:
        """What the nodes want to say is on its way."""
        for store, letters in self.sender.take_sends():
            self.frames += 1
            if store in self.sender.links:
                self.there[store].append(letters)
        for store, receiver in self.receivers.items():
            for to, answer in receiver.letters.take_answers():
                assert to == SENDER
                self.back[store].append(answer)

    def deliver(self, store: StoreId) -> None:
        """One frame arrives."""
        if self.there[store]:
            self.receivers[store].letters.received(SENDER, self.there[store].popleft())
            self.collect()

    def answer(self, store: StoreId) -> None:
        """One answer arrives."""
        if self.back[store]:
            self.sender.done(store, self.back[store].popleft(), self.now)
            self.collect()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while self.later:
            self.later.popleft()()
        self.has_work = False
        self.sender.flush(self.now)
        self.sender.tick(self.now)
        for receiver in self.receivers.values():
            receiver.letters.sweep()
        self.collect()

    def restart(self, store: StoreId) -> None:
        """The process of a node ends, and another one begins."""
        self.link_down(store)
        self.back[store].clear()
        if self.leader is not None and self.leader.store == store:
            self.lead(None)
        self.receivers[store] = Receiver(store)

    # --- leaders ---

    def lead(self, store: StoreId | None) -> None:
        """Another term begins, or none."""
        if self.leader is not None and self.leader.queue is not None:
            self.kept += self.leader.queue.end()
            self.leader.queue = None
        self.epoch += 1
        self.leader = None if store is None else self.receivers[store]
        if self.leader is not None:
            self.leader.queue = LedQueue()
        self.collect()

    def commit(self) -> None:
        if self.leader is not None and self.leader.queue is not None:
            self.leader.queue.commit()
            self.collect()

    def safe_in_queue(self) -> list[int]:
        led = None if self.leader is None else self.leader.queue
        return self.kept + ([] if led is None else led.bodies[: led.synced])

    def in_queue(self) -> list[int]:
        led = None if self.leader is None else self.leader.queue
        return self.kept + ([] if led is None else led.bodies)

    def settle(self) -> None:
        """Let all that is on its way arrive, over links that last."""
        for store in self.receivers:
            self.link_up(store)
            self.link_back_up(store)
        for _ in range(50):
            self.pass_time(2.0)
            for store in self.receivers:
                while self.there[store]:
                    self.deliver(store)
                self.commit()
                while self.back[store]:
                    self.answer(store)
