"""Exchanges that delay or drop messages, and policies that change in the middle of traffic, at random.

More examples: EXCHANGES_EXAMPLES=2000.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.stage import Client, Keeping, PreparedMessage, Stage, deaths
from tests.support.machine import small_limits
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties
from warren.amqp.table import Table, Timestamp
from warren.broker import commands
from warren.broker.internal_queue import DelayQueue

pytestmark = pytest.mark.slow

MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
EXAMPLES = settings(max_examples=int(os.environ.get("EXCHANGES_EXAMPLES", "25")), report_multiple_bugs=False)
LONG_MS = 100_000


@contextmanager
def a_stage(memory_bytes: int) -> Iterator[Stage]:
    scratch = tempfile.mkdtemp(prefix="warren-exchanges-", dir=MEMORY if MEMORY.is_dir() else None)
    with small_limits():
        stage = Stage(Path(scratch), Keeping("any", True, True, (PERSISTENT,), memory_bytes))
        try:
            yield stage
            stage.check()
        finally:
            stage.close()
            shutil.rmtree(scratch)


def steps_of(*names: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    step = st.tuples(st.sampled_from(names), st.integers(0, 2**32))
    return st.lists(step, min_size=15, max_size=50)


def message(number: int, headers: Table, *, persistent: bool) -> PreparedMessage:
    mode = PERSISTENT if persistent else TRANSIENT
    return PreparedMessage(b"%d" % number, BasicProperties(headers=headers, delivery_mode=mode))


def come_back(stage: Stage, rng: Random, how: str) -> None:
    if how == "restart":
        stage.restart(down_ms=100 * rng.choice([0, 3, 20]))
    else:
        stage.kill(rng, power=how == "cut_power")
    stage.pass_ms(1)  # what was due meanwhile


class Delays:
    """`waiting` has of each message when it is due, and whether it survives."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.waiting: dict[int, tuple[int, bool]] = {}
        self.number = 0
        client = stage.client
        arguments: Table = {"x-delayed-type": "fanout"}
        client.declare_exchange("late", "x-delayed-message", arguments=arguments, durable=True)
        client.queue("q")
        client.bind("q", "late")

    def do(self, name: str, rng: Random) -> None:
        if name == "publish":
            self.publish(rng)
        elif name == "purge":
            self.stage.client.purge("amq.delayed.late", len(self.waiting))
            self.waiting.clear()
        elif name == "pass_time":
            self.stage.pass_ms(100 * rng.choice([1, 3, 7, 30]))
        else:
            self.look()
            come_back(self.stage, rng, name)
            self.waiting = {number: each for number, each in self.waiting.items() if each[1]}
            if name == "cut_power":
                self.begin_anew()

    def begin_anew(self) -> None:
        """With the power the news may be gone that a message had left; that one waits is not."""
        self.stage.pass_ms(LONG_MS)
        now_ms, found = self.stage.world.time_ms(), set(self.stage.client.drain("q"))
        assert {b"%d" % number for number, each in self.waiting.items() if each[0] <= now_ms} <= found
        room = self.stage.queues["amq.delayed.late"]
        self.stage.client.purge("amq.delayed.late", room.message_count)
        self.waiting.clear()

    def publish(self, rng: Random) -> None:
        now_ms, messages = self.stage.world.time_ms(), []
        for _ in range(rng.randint(1, 8)):
            self.number += 1
            delay, persistent = rng.choice([51, 151, 551, 551, 2051, 2**63 - 1]), rng.random() < 0.7
            by_time = delay < LONG_MS and rng.random() < 0.3
            header: Table = {"x-deliver-at": now_ms + delay} if by_time else {"x-delay": delay}
            if by_time and rng.random() < 0.3:
                header["x-delay"] = Timestamp(rng.randrange(2**64))  # which says nothing then
            self.waiting[self.number] = now_ms + delay, persistent
            messages.append(message(self.number, header, persistent=persistent))
        self.stage.client.put_together(messages, "", exchange="late")

    def look(self) -> None:
        """What is due has come, in this order."""
        now_ms = self.stage.world.time_ms()
        due = sorted((each[0], number) for number, each in self.waiting.items() if each[0] <= now_ms)
        found = [int(body) for body in self.stage.client.drain("q")]
        assert sorted(found) == sorted(number for _, number in due)
        times = [self.waiting.pop(number)[0] for number in found]
        assert times == sorted(times)
        assert self.stage.queues["amq.delayed.late"].message_count == len(self.waiting)

    def check_nothing_is_left(self) -> None:
        self.stage.client.purge("amq.delayed.late", len(self.waiting))
        room = self.stage.queues["amq.delayed.late"]
        assert isinstance(room, DelayQueue)
        lane = room.lane
        assert lane.log is not None
        assert not any(segment.alive for segment in lane.log.segments)  # type: ignore[attr-defined]
        assert self.stage.node.memory.used_bytes == 0


@given(
    memory_bytes=st.sampled_from([1, 1 << 20]),
    steps=steps_of(
        "publish", "publish", "publish", "pass_time", "pass_time", "purge", "restart", "kill", "cut_power"
    ),
)
@EXAMPLES
def test_delayed_messages_come_when_they_are_due_and_in_this_order(
    memory_bytes: int, steps: list[tuple[str, int]]
) -> None:
    with a_stage(memory_bytes) as stage:
        delays = Delays(stage)
        for name, seed in steps:
            delays.do(name, Random(seed))
            delays.look()
        delays.check_nothing_is_left()


CACHE_SIZE, LENGTH = 12, 5


@given(
    memory_bytes=st.sampled_from([1, 1 << 20]),
    steps=steps_of("publish", "publish", "restart", "kill", "cut_power"),
)
@EXAMPLES
def test_exchange_drops_what_it_has_seen_over_restarts(
    memory_bytes: int, steps: list[tuple[str, int]]
) -> None:
    with a_stage(memory_bytes) as stage:
        arguments: Table = {"x-message-deduplication": True, "x-cache-size": CACHE_SIZE}
        stage.client.declare_exchange("once", "fanout", arguments=arguments, durable=True)
        stage.client.queue("q", {"x-max-length": LENGTH, "x-overflow": "reject-publish"})
        stage.client.bind("q", "once")
        seen: list[int] = []
        for name, seed in steps:
            rng = Random(seed)
            if name == "publish":
                publish_once(stage, rng, seen)
            else:
                come_back(stage, rng, name)
                stage.client.drain("q")  # with the power the news may be gone that they were taken
            assert stage.queues["amq.dedup.once"].message_count == len(seen)


def publish_once(stage: Stage, rng: Random, seen: list[int]) -> None:
    """Some that are new and some that are not; the queue refuses what is too much."""
    publisher = stage.connect(confirming=True)
    expected: list[int] = []
    refused: list[int] = []
    for tag in range(1, rng.randint(2, 9)):
        value = rng.randrange(20)
        publisher.put_together(
            [message(value, {"x-deduplication-header": value}, persistent=rng.random() < 0.7)],
            "",
            exchange="once",
        )
        if value in seen:
            continue
        if len(expected) == LENGTH:
            refused.append(tag)
            continue
        expected.append(value)
        seen.append(value)
        del seen[:-CACHE_SIZE]
    assert publisher.nacked() == refused
    assert [int(body) for body in stage.client.drain("q")] == expected
    publisher.hang_up()


DEFINITIONS: tuple[Table, ...] = (
    {"message-ttl": 1007},
    {"max-length": 3},
    {"max-length": 3, "overflow": "reject-publish"},
    {"max-length-bytes": 20, "overflow": "reject-publish-dlx"},
    {"delivery-limit": 1},
    {"retry-delay-min": 511},
    {"retry-delay-min": 511, "delivery-limit": 2, "message-ttl": 3007},
)
TO_DEAD: Table = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}


class Traffic:
    """Of a queue whose rules change. All that dies comes to another, unless nothing says so."""

    def __init__(self, stage: Stage, *, grouped: bool) -> None:
        self.stage = stage
        self.number = 0
        self.taken: set[int] = set()  # confirmed, and not seen to be gone
        self.definition: Table = TO_DEAD
        stage.client.queue("dead")
        stage.client.queue("q", {"x-group-header": "g"} if grouped else {})
        self.change(TO_DEAD)
        self.connect()

    def connect(self) -> None:
        self.publisher, self.taker = self.stage.connect(confirming=True), self.stage.connect()
        self.out: dict[int, int] = {}
        self.taker.start("q", prefetch=3)

    def change(self, definition: Table) -> None:
        policy = commands.PutPolicy(vhost="/", name="p", pattern="^q$", definition=definition)
        self.stage.node.execute(policy)
        self.stage.node.end_turn()
        self.stage.settle()

    def do(self, name: str, rng: Random) -> None:
        if name == "publish":
            self.publish(rng)
        elif name == "policy":
            self.change({**TO_DEAD, **rng.choice(DEFINITIONS)})
        elif name == "no_policy":
            self.change(TO_DEAD)
        elif name == "pass_time":
            self.stage.pass_ms(100 * rng.choice([1, 6, 20]))
        elif name == "settle":
            self.settle(rng)
        else:
            come_back(self.stage, rng, name)
            self.connect()
        self.look()

    def publish(self, rng: Random) -> None:
        count = rng.randint(1, 9)
        group: Table = {"g": rng.randrange(3)}
        numbers = range(self.number + 1, self.number + count + 1)
        self.number += count
        before = self.publisher.published
        self.publisher.put_together([message(n, group, persistent=True) for n in numbers], "q")
        refused = {tag - before for tag in self.publisher.nacked()}
        self.taken |= {n for tag, n in enumerate(numbers, 1) if tag not in refused}

    def settle(self, rng: Random) -> None:
        for tag in sorted(self.out)[: rng.randint(1, 3)]:
            number = self.out.pop(tag)
            how = rng.choice(["ack", "requeue", "reject"])
            if how == "ack":
                self.taker.ack(tag)
                self.taken.discard(number)
            else:
                self.taker.send(m.BasicNack(delivery_tag=tag, requeue=how == "requeue"))

    def look(self) -> None:
        for content in self.taker.deliveries():
            number = int(content.body)
            assert number in self.taken
            assert number not in self.out.values()
            self.out[content.method.delivery_tag] = number
        self.bury(self.stage.client)
        queue = self.stage.queues["q"]
        assert queue.unacked == len(self.out)
        assert queue.message_count <= len(self.taken) - len(self.out)

    def bury(self, client: Client) -> None:
        for content in client.drain_all("dead"):
            number = int(content.body)
            assert number not in self.out.values(), deaths(content)
            self.taken.discard(number)

    def finish(self) -> None:
        """All that was taken, and is not gone for a reason, is there."""
        self.change(TO_DEAD)
        self.taker.hang_up()
        left: set[int] = set()
        for _ in range(
            3
        ):  # the first round may let some wait that had been delivered before the broker started
            left |= {int(body) for body in self.stage.client.drain("q")}
            self.stage.pass_ms(LONG_MS)
        self.out.clear()
        self.bury(self.stage.client)
        assert left == self.taken
        queue = self.stage.queues["q"]
        assert (queue.message_count, queue.message_bytes, queue.unacked) == (0, 0, 0)
        log = classic(queue).lane.log
        assert log is not None
        assert not any(segment.alive for segment in log.segments)  # type: ignore[attr-defined]


NAMES = (
    ["publish"] * 5 + ["settle"] * 6 + ["policy"] * 4 + ["pass_time"] * 3 + ["no_policy", "restart", "kill"]
)


@given(grouped=st.booleans(), memory_bytes=st.sampled_from([1, 1 << 20]), steps=steps_of(*NAMES))
@EXAMPLES
def test_policies_that_change_in_the_middle_of_traffic_lose_nothing(
    grouped: bool, memory_bytes: int, steps: list[tuple[str, int]]
) -> None:
    with a_stage(memory_bytes) as stage:
        traffic = Traffic(stage, grouped=grouped)
        for name, seed in steps:
            traffic.do(name, Random(seed))
        traffic.finish()
