"""One queue with any of its rules against a model of lists, through restarts and kills.

A worker publishes, gets, consumes, acks and returns; what dies comes to another queue. Time passes in steps
of 100 ms, and all that is due is due in between, so that nothing is ever due at the very time of a step. All
is on disk before the next step, except in `crash`.

More examples: RULES_EXAMPLES=2000. A failing example is printed as the steps that lead there, and as a blob
with which Hypothesis repeats it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.model import Copy, Death, ModelConsumer, ModelRules, QueueModel, State
from tests.rules.stage import TO_DEAD, Client, Keeping, PreparedMessage, Stage, deaths, header
from tests.support.frames import Content
from tests.support.machine import give_up_ready, small_limits
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties
from warren.amqp.table import Table

pytestmark = pytest.mark.slow

MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
SEEDS = st.integers(0, 2**32)
LONGER_THAN_ANY_MS = 20_000
EXPIRATIONS = (None, None, 503, 2003, 5003)

# Few at a time: each hides what the others do.
RULES = st.builds(
    ModelRules,
    durable=st.sampled_from([True, True, False]),
    ttl_ms=st.sampled_from([None, None, None, 1007, 3007]),
    length=st.sampled_from([None, None, None, None, None, 0, 1, 3, 6]),
    length_bytes=st.sampled_from([None, None, None, None, None, 0, 15, 30]),
    overflow=st.sampled_from(["drop-head", "drop-head", "drop-head", "reject-publish", "reject-publish-dlx"]),
    priority=st.sampled_from([0, 0, 1, 3]),
    delivery_limit=st.sampled_from([None, None, 0, 1, 2, 3]),
    retry_min_ms=st.sampled_from([None, None, 1011]),
    retry_max_ms=st.just(3033),
)
NUMBERED = b"%06d"


def arguments_of(rules: ModelRules) -> Table:
    said: dict[str, int | str | None] = {
        "x-message-ttl": rules.ttl_ms,
        "x-max-length": rules.length,
        "x-max-length-bytes": rules.length_bytes,
        "x-overflow": rules.overflow,
        "x-max-priority": rules.priority or None,
        "x-delivery-limit": rules.delivery_limit,
        "x-retry-delay-min": rules.retry_min_ms,
        "x-retry-delay-max": None if rules.retry_min_ms is None else rules.retry_max_ms,
    }
    return {**TO_DEAD, **{name: value for name, value in said.items() if value is not None}}


class Comparison:
    """A real queue beside its model. Each step takes its choices from a generator of its own."""

    def __init__(self, declared: ModelRules, memory_bytes: int, scratch: Path) -> None:
        self.declared = declared
        self.published = 0
        self.stage = Stage(scratch, Keeping("any", True, declared.durable, (PERSISTENT,), memory_bytes))
        self.start_anew()

    def start_anew(self) -> None:
        """With both queues empty."""
        self.stage.client.queue("dead")
        self.stage.client.queue("q", arguments_of(self.declared))
        self.model = QueueModel(self.declared, self.now_ms)
        self.persistent: set[int] = set()
        self.connect()

    def connect(self) -> None:
        self.worker = self.stage.connect()
        self.publisher = self.stage.connect(confirming=True)
        self.out: dict[int, Copy] = {}

    @property
    def now_ms(self) -> int:
        return self.stage.world.time_ms()

    # --- publishing ---

    def publish(self, rng: Random) -> None:
        size, persistent = rng.choice([6, 6, 7, 15, 40]), rng.random() < 0.7
        self.publish_one(size, persistent, rng.choice([None, 0, 1, 2, 3, 5]), rng.choice(EXPIRATIONS))

    def publish_some(self, rng: Random) -> None:
        for _ in range(rng.randint(4, 9)):
            self.publish_one(6, True, self.published % 4, None)

    def publish_one(self, size: int, persistent: bool, priority: int | None, expiration: int | None) -> None:
        copy, message = self.make_message(size, persistent, priority, expiration)
        taken = self.model.publish(copy)
        self.publisher.put_together([message], "q")
        assert self.publisher.nacked() == ([] if taken else [self.publisher.published])
        self.look()

    def publish_together(self, rng: Random) -> None:
        """In one turn; what is refused in the middle of a turn depends on what is delivered in it."""
        if self.declared.overflow != "drop-head":
            return
        persistent, spread, expiration = rng.random() < 0.7, rng.random() < 0.5, rng.choice(EXPIRATIONS)
        messages = []
        for number in range(rng.randint(2, 9)):
            copy, message = self.make_message(6, persistent, number % 4 if spread else None, expiration)
            assert self.model.publish(copy)
            messages.append(message)
        self.publisher.put_together(messages, "q")
        assert self.publisher.nacked() == []
        self.look()

    def make_message(
        self, size: int, persistent: bool, priority: int | None, expiration: int | None
    ) -> tuple[Copy, PreparedMessage]:
        self.published += 1
        copy = Copy(
            self.published,
            priority or 0,
            size,
            persistent and self.declared.durable,
            None if expiration is None else self.now_ms + expiration,
        )
        if copy.persistent:
            self.persistent.add(copy.number)
        properties = BasicProperties(
            delivery_mode=PERSISTENT if persistent else TRANSIENT,
            priority=priority,
            expiration=None if expiration is None else str(expiration),
        )
        return copy, PreparedMessage((NUMBERED % copy.number).ljust(size), properties)

    # --- taking ---

    def get(self, rng: Random) -> None:
        no_ack = rng.random() < 0.3
        expected = self.model.take()
        content = self.worker.get("q", no_ack=no_ack)
        assert (content is None) == (expected is None), f"got {content}, not {expected}"
        if expected is not None and content is not None:
            self.check_content(content, expected)
            assert content.method.message_count == len(self.model.ready) - 1
            self.model.go_out(expected, no_ack=no_ack)
            if not no_ack:
                self.out[content.method.delivery_tag] = expected
        self.look()

    def consume(self, rng: Random) -> None:
        if self.model.consumer is not None:
            return
        prefetch, no_ack = rng.randint(0, 4), rng.random() < 0.2
        self.model.consumer = ModelConsumer(prefetch, no_ack)
        self.worker.start("q", prefetch=prefetch, no_ack=no_ack)
        self.look()

    def cancel(self, rng: Random) -> None:
        if self.model.consumer is None:
            return
        self.model.consumer = None
        self.worker.cancel()
        self.look()

    def settle(self, rng: Random) -> None:
        if not self.out:
            return
        multiple, how = rng.random() < 0.5, rng.choice(["ack", "requeue", "requeue", "reject"])
        tag = rng.choice(sorted(self.out))
        for each in [each for each in sorted(self.out) if each == tag or (multiple and each < tag)]:
            copy = self.out.pop(each)
            if how == "ack":
                copy.state = State.DONE
            elif how == "requeue":
                self.model.give_back(copy)
            else:
                self.model.die(copy, "rejected")
        self.worker.send(settling(how, tag, multiple=multiple))
        self.look()

    def close_channel(self, rng: Random) -> None:
        self.model.consumer = None
        for tag in sorted(self.out):
            self.model.give_back(self.out[tag])
        self.out.clear()
        self.worker.reopen()
        self.look()

    def purge(self, rng: Random) -> None:
        self.worker.purge("q", self.model.purge())
        self.look()

    def memory_is_short(self, rng: Random) -> None:
        give_up_ready(self.stage.queues.values())

    # --- time and ends ---

    def pass_time(self, rng: Random) -> None:
        self.stage.pass_ms(100 * rng.choice([1, 5, 6, 11, 21, 40]))
        self.look(self.model.advance(self.now_ms))

    def restart(self, rng: Random) -> None:
        down_steps = rng.choice([0, 10, 50])
        self.model.lose_clients(cleanly=True)
        self.model.turn()
        self.stage.restart(down_ms=100 * down_steps)
        self.model.advance(self.now_ms - 100 * down_steps)
        self.come_back()

    def kill(self, rng: Random) -> None:
        """With nothing under way."""
        self.model.lose_clients(cleanly=False)
        self.stage.kill(rng)
        self.come_back()

    def come_back(self) -> None:
        if not self.declared.durable:
            self.start_anew()
            return
        self.model.now_ms = self.now_ms
        kept = {copy.number for copy in self.model.copies if copy.persistent}
        self.model.deaths = [[death for death in group if death[0] in kept] for group in self.model.deaths]
        self.model.come_back()
        self.connect()
        self.look(in_order=False)

    def crash(self, rng: Random) -> None:
        """In the middle of many things; after that, all begins anew."""
        if not self.declared.durable:
            return
        power = rng.random() < 0.5
        safe = {copy.number for copy in self.model.copies if copy.state is not State.DONE and copy.persistent}
        acked = self.do_things(rng)
        safe -= acked
        self.stage.machine.turn()
        self.stage.machine.disk.work(rng.randint(0, len(self.stage.machine.disk.pending)))
        client = self.stage.kill(rng, power=power)
        found = set(self.find_all(client))
        assert safe <= found, "something is lost"
        known = self.persistent if power else safe | acked  # what was done with may come back with the power
        assert found <= known | set(range(self.first_new, self.published + 1))
        for name in ("q", "dead"):
            client.delete(name)
        self.start_anew()

    def do_things(self, rng: Random) -> set[int]:
        """Without waiting for the disk; which were acked, or may have gone to somebody who need not."""
        acked = set()
        consumer = self.model.consumer
        goes_at_once = consumer is not None and consumer.no_ack
        self.first_new = self.published + 1
        for _ in range(rng.randint(0, 6)):
            if self.out and rng.random() < 0.5:
                tag = rng.choice(sorted(self.out))
                copy = self.out.pop(tag)
                how = rng.choice(["ack", "requeue", "reject"])
                if how == "ack" or (how == "requeue" and goes_at_once):
                    acked.add(copy.number)
                self.worker.send_only(settling(how, tag, multiple=False))
            else:
                _, message = self.make_message(6, persistent=True, priority=None, expiration=None)
                self.publisher.publish("", "q", *message)
        return acked

    def find_all(self, client: Client) -> Iterator[int]:
        """What is left in both queues, whatever it waits for."""
        for _ in range(2):
            yield from (int(body) for name in ("q", "dead") for body in client.drain(name))
            self.stage.pass_ms(LONGER_THAN_ANY_MS)

    # --- what the clients see ---

    def look(self, delivered: list[Copy] | None = None, *, in_order: bool = True) -> None:
        """Compare what happened with what should have."""
        expected = [*(delivered or []), *self.model.turn()]
        contents = self.worker.deliveries()
        assert [int(content.body) for content in contents] == [copy.number for copy in expected]
        for content, copy in zip(contents, expected, strict=True):
            self.check_content(content, copy)
            if copy.state is State.OUT:
                self.out[content.method.delivery_tag] = copy
        self.check_dead(in_order=in_order)
        assert not self.stage.world.errors, self.stage.world.errors

    def check_content(self, content: Content[m.BasicGetOk] | Content[m.BasicDeliver], copy: Copy) -> None:
        assert int(content.body) == copy.number
        assert len(content.body) == copy.size
        assert content.method.redelivered is (copy.returned > 0), copy
        counted = self.declared.delivery_limit is not None or self.declared.retry_min_ms is not None
        told = copy.returned if counted else None
        assert header(content, "x-delivery-count") == (told or None), copy

    def check_dead(self, *, in_order: bool) -> None:
        found = [
            (int(each.body), str(deaths(each)[0]["reason"])) for each in self.stage.client.drain_all("dead")
        ]
        groups, self.model.deaths = self.model.deaths, []
        if not in_order:
            groups = [sorted(death for group in groups for death in group)]
            found.sort()
        expected: list[Death] = []
        for group in groups:
            there = found[len(expected) : len(expected) + len(group)]
            expected += there if sorted(there) == sorted(group) else group
        assert found == expected

    def rest(self, rng: Random) -> None:
        pass

    def the_queue_counts_as_the_model_does(self) -> None:
        queue = self.stage.queues["q"]
        assert queue.message_count == len(self.model.ready)
        assert queue.message_bytes == sum(copy.size for copy in self.model.ready)
        assert queue.unacked == len(self.model.those(State.OUT))


def settling(how: str, tag: int, *, multiple: bool) -> m.Method:
    if how == "ack":
        return m.BasicAck(delivery_tag=tag, multiple=multiple)
    return m.BasicNack(delivery_tag=tag, multiple=multiple, requeue=how == "requeue")


# How often each is done, beginning with what is understood most easily.
STEPS = {
    Comparison.rest: 1,
    Comparison.pass_time: 8,
    Comparison.publish: 8,
    Comparison.publish_some: 3,
    Comparison.publish_together: 6,
    Comparison.get: 7,
    Comparison.settle: 10,
    Comparison.consume: 7,
    Comparison.cancel: 3,
    Comparison.close_channel: 2,
    Comparison.purge: 3,
    Comparison.memory_is_short: 4,
    Comparison.restart: 2,
    Comparison.kill: 2,
    Comparison.crash: 1,
}
CHOICES = [step.__name__ for step, weight in STEPS.items() for _ in range(weight)]


@given(
    declared=RULES,
    memory_bytes=st.sampled_from([1, 1 << 20]),
    steps=st.lists(st.tuples(st.sampled_from(CHOICES), SEEDS), min_size=25, max_size=80),
)
@settings(
    max_examples=int(os.environ.get("RULES_EXAMPLES", "100")),
    report_multiple_bugs=False,
)
def test_queue_does_what_its_model_does(
    declared: ModelRules, memory_bytes: int, steps: list[tuple[str, int]]
) -> None:
    with ExitStack() as ends:
        ends.enter_context(small_limits())
        scratch = tempfile.mkdtemp(prefix="warren-rules-", dir=MEMORY if MEMORY.is_dir() else None)
        ends.callback(shutil.rmtree, scratch)
        comparison = Comparison(declared, memory_bytes, Path(scratch))
        ends.callback(comparison.stage.close)
        for name, seed in steps:
            getattr(comparison, name)(Random(seed))
            comparison.the_queue_counts_as_the_model_does()
