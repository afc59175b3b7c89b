"""Consumers of every kind come and go at one queue with any of its rules: what must never happen does not.

There is no model of who gets what, only of where each message is: in the queue, out with somebody, or gone
for a known reason. Time passes in steps of 100 ms, and all that is due is due in between. All is on disk
before the next step, except in `crash`.

More examples: CONSUMERS_EXAMPLES=2000. A failing example is printed as the steps that lead there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.cast import RETRY_MS, Declared, Record, Taker
from tests.rules.stage import Client, Keeping, PreparedMessage, Stage, deaths
from tests.support.frames import Content
from tests.support.machine import give_up_ready, small_limits
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, TRANSIENT, BasicProperties
from warren.amqp.table import Table

pytestmark = pytest.mark.slow

MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own
LONGER_THAN_ANY_MS = 600_000
CONSUMERS_MAX = 5

DECLARED = st.builds(
    Declared,
    durable=st.sampled_from([True, True, False]),
    grouped=st.sampled_from([False, False, True]),
    retry=st.sampled_from([False, False, True]),
    limit=st.sampled_from([None, None, 1, 3]),
    priority=st.sampled_from([0, 0, 2]),
    single=st.sampled_from([False, False, False, True]),
    ttl_ms=st.sampled_from([None, None, None, 3007]),
    once=st.sampled_from([False, False, True]),
)


class Scene:
    def __init__(self, declared: Declared, memory_bytes: int, scratch: Path) -> None:
        self.declared = declared
        self.published = 0
        self.stage = Stage(scratch, Keeping("any", True, declared.durable, (PERSISTENT,), memory_bytes))
        self.start_anew()

    def start_anew(self) -> None:
        client = self.stage.client
        client.queue("dead")
        client.queue("q", self.declared.arguments())
        client.drain("dead")
        self.records: dict[int, Record] = {}
        self.known: set[int] = set()
        self.firsts: dict[tuple[int, int | None], int] = {}
        self.new_firsts: dict[tuple[int, int | None], int] = {}
        self.newly_out: list[Record] = []
        self.connect()

    def connect(self) -> None:
        self.takers: list[Taker] = []
        self.getter = Taker(self.stage.connect(), "getter", 0, False, 0, 0, consumes=False)
        self.publisher = self.stage.connect(confirming=True)

    @property
    def now_ms(self) -> int:
        return self.stage.world.time_ms()

    def those(self, state: str) -> list[Record]:
        return [record for record in self.records.values() if record.state == state]

    # --- publishing ---

    def publish(self, rng: Random) -> None:
        self.publish_some(rng, 1)

    def publish_many(self, rng: Random) -> None:
        self.publish_some(rng, rng.randint(4, 12))

    def publish_some(self, rng: Random, count: int) -> None:
        self.publisher.put_together([self.make_message(rng) for _ in range(count)], "q")
        assert self.publisher.nacked() == []

    def make_message(self, rng: Random) -> PreparedMessage:
        self.published += 1
        number, expiration = self.published, rng.choice([None, None, None, 503, 2003])
        group, n = rng.choice([None, 1, 2, 3]), rng.randrange(6)
        headers: Table = {"n": n} if group is None else {"n": n, "g": group}
        is_new = True
        if rng.random() < 0.3:
            value = rng.randrange(8)
            headers["x-deduplication-header"] = value
            is_new = not self.declared.once or value not in self.known
            self.known.add(value)
        priority, persistent = rng.choice([None, 0, 1, 2, 7]), rng.random() < 0.7
        if is_new:
            ttls = [ttl for ttl in (expiration, self.declared.ttl_ms) if ttl is not None]
            self.records[number] = Record(
                number,
                min(priority or 0, self.declared.priority),
                group if self.declared.grouped else None,
                n,
                persistent and self.declared.durable,
                self.now_ms + min(ttls) if ttls else None,
            )
        properties = BasicProperties(
            headers=headers,
            delivery_mode=PERSISTENT if persistent else TRANSIENT,
            priority=priority,
            expiration=None if expiration is None else str(expiration),
        )
        return PreparedMessage((b"%06d" % number).ljust(rng.choice([6, 6, 40, 300])), properties)

    def memory_is_short(self, rng: Random) -> None:
        give_up_ready(self.stage.queues.values())

    # --- consumers ---

    def consume(self, rng: Random) -> None:
        kinds = ["plain", "plain", "browser"] if self.declared.grouped else ["plain", "selector", "browser"]
        if len(self.takers) < CONSUMERS_MAX:
            no_ack = rng.random() < 0.15
            taker = Taker(
                self.stage.connect(),
                rng.choice(kinds),
                rng.choice([0, 1, 2, 5]),
                no_ack,
                rng.randint(1, 5),
                rng.choice([0, 0, 0, 3]),
            )
            self.takers.append(taker)
            taker.client.start("q", prefetch=taker.prefetch, no_ack=no_ack, arguments=taker.arguments())

    def cancel(self, rng: Random) -> None:
        able = [taker for taker in self.takers if taker.consumes]
        if able:
            taker = rng.choice(able)
            taker.consumes = False
            taker.client.cancel()

    def hang_up(self, rng: Random) -> None:
        if self.takers:
            taker = self.takers.pop(rng.randrange(len(self.takers)))
            self.take_back(taker)
            if rng.random() < 0.5:
                taker.client.reopen()
            taker.client.hang_up()

    def take_back(self, taker: Taker) -> None:
        self.look_at(taker)
        for record in taker.out.values():
            if taker.takes:
                self.give_back(record)

    def give_back(self, record: Record) -> None:
        record.state, record.holder = "in", None
        record.returned += 1
        self.let_wait(record)

    def let_wait(self, record: Record) -> None:
        if self.declared.retry and record.returned:
            record.waits_until_ms = self.now_ms + (RETRY_MS << record.returned - 1)

    def get(self, rng: Random) -> None:
        if self.declared.single:
            return
        no_ack = rng.random() < 0.3
        content = self.getter.client.get("q", no_ack=no_ack)
        if content is not None:
            self.note_delivery(self.getter, content, no_ack=no_ack)
        elif not self.declared.grouped:
            assert all(map(self.is_worn, self.ready())), "there was something to get"

    def settle(self, rng: Random) -> None:
        holders = [taker for taker in (*self.takers, self.getter) if taker.out]
        if not holders:
            return
        taker = rng.choice(holders)
        how, tag, multiple = rng.choice(HOWS), rng.choice(sorted(taker.out)), rng.random() < 0.4
        for each in [each for each in sorted(taker.out) if each == tag or (multiple and each < tag)]:
            self.settle_one(taker, taker.out.pop(each), how)
        if how == "ack":
            taker.client.ack(tag, multiple=multiple)
        else:
            nack = m.BasicNack(delivery_tag=tag, multiple=multiple, requeue=how == "requeue")
            taker.client.send(nack)

    def settle_one(self, taker: Taker, record: Record, how: str) -> None:
        if not taker.takes:
            return
        if how == "requeue":
            self.give_back(record)
            return
        record.state, record.holder = ("done" if how == "ack" else "in"), None
        record.rejected = how == "reject"

    def purge(self, rng: Random) -> None:
        self.stage.client.purge("q", len(self.those("in")))
        for record in self.those("in"):
            record.state = "purged"

    # --- time and ends ---

    def pass_time(self, rng: Random) -> None:
        for _ in range(rng.choice([1, 5, 6, 11, 21, 40])):
            self.stage.pass_ms(100)
            for taker in self.takers:
                self.look_at(taker)

    def restart(self, rng: Random) -> None:
        for taker in self.takers:  # or what one gives back goes to the next
            taker.client.cancel()
        for taker in (*self.takers, self.getter):
            self.take_back(taker)
        self.stage.restart(down_ms=100 * rng.choice([0, 10, 50]))
        self.come_back()

    def kill(self, rng: Random) -> None:
        """With nothing under way."""
        for taker in (*self.takers, self.getter):
            self.take_back(taker)
        self.stage.kill(rng)
        self.come_back()

    def come_back(self) -> None:
        if not self.declared.durable:
            self.start_anew()
            return
        for record in self.those("in"):
            if record.persistent:
                self.let_wait(record)
            else:
                record.state = "lost"
        self.connect()

    def crash(self, rng: Random) -> None:
        """In the middle of many things, and maybe with the power; after that, all begins anew."""
        if not self.declared.durable:
            return
        safe = {each.number for state in ("in", "out") for each in self.those(state) if each.persistent}
        if any(taker.no_ack and taker.consumes for taker in self.takers):
            safe = set()  # any of them may go there
        for _ in range(rng.randint(0, 6)):
            safe -= self.do_something(rng)
        self.stage.machine.turn()
        self.stage.machine.disk.work(rng.randint(0, len(self.stage.machine.disk.pending)))
        client = self.stage.kill(rng, power=rng.random() < 0.5)
        found = set(self.find_all(client))
        assert safe <= found, f"{safe - found} are lost"
        for name in ("q", "dead"):
            client.delete(name)
        self.start_anew()

    def do_something(self, rng: Random) -> set[int]:
        """Without waiting for the disk; what it may have ended."""
        holders = [taker for taker in (*self.takers, self.getter) if taker.out]
        if holders and rng.random() < 0.6:
            taker = rng.choice(holders)
            tag, requeue = rng.choice(sorted(taker.out)), rng.random() < 0.5
            record = taker.out.pop(tag)
            if rng.random() < 0.5:
                taker.client.send_only(m.BasicAck(delivery_tag=tag))
                return {record.number} if taker.takes else set()
            taker.client.send_only(m.BasicNack(delivery_tag=tag, requeue=requeue))
        else:
            self.publisher.publish("", "q", *self.make_message(rng))
        return set()

    def find_all(self, client: Client) -> Iterator[int]:
        """What is left in both queues, whatever it waits for."""
        for _ in range(2):
            for name in ("q", "dead"):
                taker = self.stage.connect()
                taker.start(name, no_ack=True)
                yield from (int(body) for body in taker.delivered())
                taker.hang_up()
            self.stage.pass_ms(LONGER_THAN_ANY_MS)

    # --- what the clients see ---

    def look(self) -> None:
        for taker in self.takers:
            self.look_at(taker)
        self.firsts |= self.new_firsts
        self.newly_out.clear()
        for content in self.stage.client.drain_all("dead"):
            self.note_death(content)
        assert not self.stage.world.errors, self.stage.world.errors
        self.check_counts()
        for taker in self.takers:
            self.check_is_served(taker)

    def look_at(self, taker: Taker) -> None:
        if taker is not self.getter:
            for content in taker.client.deliveries():
                self.note_delivery(taker, content, no_ack=taker.no_ack)

    def note_delivery(self, taker: Taker, content: Content[Any], *, no_ack: bool) -> None:
        record = self.records[int(content.body)]
        assert record.due_ms is None or self.now_ms < record.due_ms, f"{record} comes too late"
        assert taker.wants(record), f"{record} is not for {taker}"
        if not taker.takes:
            self.check_order(taker.seen, record.level, record)
            if not no_ack:
                taker.out[content.method.delivery_tag] = record
            return
        assert record.state == "in", f"{record} is delivered"
        assert not record.rejected, f"{record} was rejected"
        assert self.now_ms >= record.waits_until_ms, f"{record} comes too early"
        assert content.method.redelivered is (record.returned > 0)
        self.check_group(taker, record, no_ack=no_ack)
        if not record.delivered:
            self.check_first(taker, record)
        record.delivered = True
        record.state = "done" if no_ack else "out"
        if not no_ack:
            record.holder = taker
            self.newly_out.append(record)
            taker.out[content.method.delivery_tag] = record

    def is_worn(self, record: Record) -> bool:
        """After a kill, one that was delivered too often is only gone when somebody would have it."""
        return self.declared.limit is not None and record.returned > self.declared.limit

    def check_first(self, taker: Taker, record: Record) -> None:
        """First deliveries are in order: in each group, to each who selects, and to all others. What two got
        between two looks, may have come in any order.
        """
        self.check_order(taker.firsts, (record.level, record.group), record)
        if taker.kind != "selector" and (not self.declared.grouped or record.group is not None):
            line = (record.level, record.group)
            assert record.number > self.firsts.get(line, 0), f"{record} comes behind {self.firsts[line]}"
            self.new_firsts[line] = max(record.number, self.new_firsts.get(line, 0))

    def check_order(self, seen: dict[Any, int], line: object, record: Record) -> None:
        assert record.number > seen.get(line, 0), f"{record} is delivered behind {seen[line]}"
        seen[line] = record.number

    def check_group(self, taker: Taker, record: Record, *, no_ack: bool) -> None:
        if record.group is not None:
            out = [other for other in self.those("out") if other.group == record.group]
            if no_ack:  # between two looks others may have got the group behind this one
                out = [other for other in out if other not in self.newly_out]
            holders = {other.holder for other in out}
            assert holders <= {taker}, f"{record} goes to {taker}, others of it are with {holders}"

    def note_death(self, content: Content[Any]) -> None:
        record, reason = self.records[int(content.body)], deaths(content)[0]["reason"]
        assert record.state == "in", f"{record} died: {reason!r}"
        if reason == "expired":
            assert record.due_ms is not None
            assert record.due_ms <= self.now_ms
        elif reason == "delivery_limit":
            assert self.declared.limit is not None
            assert record.returned > self.declared.limit
        else:
            assert reason == "rejected"
            assert record.rejected
        record.state = "dead"

    def ready(self) -> list[Record]:
        """What must be, and not wait for a retry."""
        return [record for record in self.those("in") if record.waits_until_ms <= self.now_ms]

    def check_counts(self) -> None:
        queue = self.stage.queues["q"]
        assert queue.unacked == len(self.those("out"))
        assert len(self.ready()) <= queue.message_count <= len(self.those("in"))
        late = [r for r in self.ready() if r.rejected or (r.due_ms is not None and r.due_ms <= self.now_ms)]
        assert not late, f"{late} should be gone"

    def check_is_served(self, taker: Taker) -> None:
        """Nobody waits for what could be had."""
        if not taker.is_able or not taker.takes or not self.is_active(taker):
            return
        held = {record.group for record in self.those("out")}
        held |= {r.group for r in self.those("in") if r.waits_until_ms > self.now_ms}
        for record in self.ready():
            if taker.wants(record) and not self.is_worn(record):
                assert record.group is not None, f"{taker} does not get {record}"
                assert record.group in held, f"{taker} does not get {record}"

    def is_active(self, taker: Taker) -> bool:
        takers = [other for other in self.takers if other.takes and other.consumes]
        return not self.declared.single or taker is max(takers, key=lambda other: other.priority)

    def browse_all(self, rng: Random) -> None:
        """Somebody new sees all that is there, each once."""
        looker = self.stage.connect()
        looker.start("q", no_ack=True, arguments={"x-browse": True})
        seen = [int(body) for body in looker.delivered()]
        looker.hang_up()
        assert len(seen) == len(set(seen))
        assert {r.number for r in self.ready()} <= set(seen) <= {r.number for r in self.those("in")}

    # --- the end ---

    def finish(self, rng: Random) -> None:
        """All is taken, and nothing is left of it."""
        for taker in (*self.takers, self.getter):
            self.take_back(taker)
            taker.client.hang_up()
        self.takers.clear()
        self.look()
        for _ in range(2):  # after a restart, messages begin to wait when somebody would have them
            self.takers.append(Taker(self.stage.connect(), "plain", 0, True, 0, 0))
            self.takers[0].client.start("q", no_ack=True)
            self.look()
            self.takers.pop().client.hang_up()
            self.stage.pass_ms(LONGER_THAN_ANY_MS)
            self.look()
        assert not self.those("in")
        assert not self.those("out")
        self.check_nothing_is_left()

    def check_nothing_is_left(self) -> None:
        queue = self.stage.queues["q"]
        assert (queue.unacked, queue.message_count, queue.message_bytes) == (0, 0, 0)
        for lane in classic(queue).lanes:
            assert not lane.has_behind()
            assert lane.log is None or not any(segment.alive for segment in lane.log.segments)  # type: ignore[attr-defined]
            assert lane.expiry is None or not lane.expiry.entries
        book = classic(queue).book
        if book is not None:
            assert not book.retry.waiting
            groups = book.groups
            assert groups is None or (groups.known, groups.free, groups.passed) == ({}, {}, 0)
        assert self.stage.node.memory.used_bytes == 0


HOWS = ["ack", "ack", "requeue", "requeue", "reject"]

# How often each is done, beginning with what is understood most easily.
STEPS = {
    Scene.pass_time: 6,
    Scene.publish: 6,
    Scene.publish_many: 8,
    Scene.get: 5,
    Scene.settle: 16,
    Scene.consume: 9,
    Scene.cancel: 3,
    Scene.hang_up: 3,
    Scene.browse_all: 2,
    Scene.purge: 2,
    Scene.memory_is_short: 4,
    Scene.restart: 2,
    Scene.kill: 2,
    Scene.crash: 1,
}
CHOICES = [step.__name__ for step, weight in STEPS.items() for _ in range(weight)]


@given(
    declared=DECLARED,
    memory_bytes=st.sampled_from([1, 1 << 20]),
    steps=st.lists(st.tuples(st.sampled_from(CHOICES), st.integers(0, 2**32)), min_size=25, max_size=80),
)
@settings(
    max_examples=int(os.environ.get("CONSUMERS_EXAMPLES", "60")),
    report_multiple_bugs=False,
)
def test_whatever_consumers_do_nothing_is_lost_or_delivered_twice(
    declared: Declared, memory_bytes: int, steps: list[tuple[str, int]]
) -> None:
    with ExitStack() as ends:
        ends.enter_context(small_limits())
        scratch = tempfile.mkdtemp(prefix="warren-consumers-", dir=MEMORY if MEMORY.is_dir() else None)
        ends.callback(shutil.rmtree, scratch)
        scene = Scene(declared, memory_bytes, Path(scratch))
        ends.callback(scene.stage.close)
        for name, seed in steps:
            getattr(scene, name)(Random(seed))
            scene.look()
        scene.finish(Random(0))
