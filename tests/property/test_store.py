"""A broker with a disk against a model of lists, through kills, power cuts and a disk that fails.

Clients publish, consume, get, ack and requeue over real sessions; the test decides when the disk works, how
far, and whether it fails. After every end of the broker, a copy of its directory is read back whole and
compared with what the clients were told; then the broker goes on with what it found.

More examples: STORE_EXAMPLES=2000. A failing example is printed as the steps that lead there.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.frames import Content, decode_contents
from tests.support.machine import Machine, give_up_ready, small_limits
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.broker.message import Message
from warren.storage.queue_log import QueueLog

pytestmark = pytest.mark.slow

DURABLE = ("d0", "d1", "d2")
NAMES = (*DURABLE, "t0")
SIZES = st.one_of(st.integers(0, 300), st.sampled_from([0, 0, 3_900, 4_096, 20_000]))
SEEDS = st.integers(0, 2**32)
MEMORY = Path("/dev/shm")  # noqa: S108 - nothing here needs a disk of its own


@dataclass(eq=False)
class Copy:
    """A message in one queue, as the clients know it: `deliveries` is how often it went out."""

    number: int
    size: int
    persistent: bool
    confirmed: bool = False
    done: bool = False
    out: bool = False
    deliveries: int = 0

    @property
    def body(self) -> bytes:
        return Random(self.number).randbytes(self.size)


@dataclass
class Shelf:
    """A queue of the model: all that ever came, in order."""

    durable: bool
    copies: list[Copy] = field(default_factory=list)
    consumed: str | None = None  # by a consumer that acks, or not

    @property
    def ready(self) -> list[Copy]:
        return [copy for copy in self.copies if not copy.done and not copy.out]

    @property
    def stored(self) -> list[Copy]:
        """What is on disk and has to stay there."""
        return [copy for copy in self.copies if not copy.done and copy.persistent and self.durable]


@dataclass(frozen=True)
class Found:
    """What a queue that was read back gave."""

    number: int
    body: bytes
    delivery_count: int
    persistent: bool


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limits = small_limits()
        self.limits.__enter__()
        self.scratch = Path(tempfile.mkdtemp(prefix="warren-store-", dir=MEMORY if MEMORY.is_dir() else None))
        self.shelves: dict[str, Shelf] = {}
        self.published = 0
        self.orphans: set[str] = set()

    def teardown(self) -> None:
        self.machine.close()
        shutil.rmtree(self.scratch)
        self.limits.__exit__(None, None, None)

    @initialize(
        segment_bytes=st.sampled_from([300, 2_000, 30_000]), open_files_max=st.sampled_from([2, 8, 50])
    )
    def begin(self, segment_bytes: int, open_files_max: int) -> None:
        self.machine = Machine(self.scratch, segment_bytes=segment_bytes, open_files_max=open_files_max)
        self.machine.run()
        self.connect()
        for name in ("d0", "d1"):
            self.declare(name)

    def connect(self) -> None:
        self.publisher = self.machine.connect(confirming=True)
        self.unconfirmed: list[list[Copy]] = []
        self.confirmed_count = 0
        self.connect_consumer()

    def connect_consumer(self) -> None:
        self.consumer = self.machine.connect()
        self.out: dict[int, tuple[Shelf, Copy]] = {}
        self.tags: dict[str, Shelf] = {}
        for shelf in self.shelves.values():
            shelf.consumed = None

    # --- publishing ---

    @rule(
        names=st.sets(st.sampled_from(NAMES), min_size=1),
        size=SIZES,
        persistent=st.sampled_from([True, True, False]),
        count=st.sampled_from([1, 1, 2, 7]),
    )
    def publish(self, names: set[str], size: int, persistent: bool, count: int) -> None:
        """One by one by their names, or to all that are bound at once."""
        reached = [name for name in sorted(names) if name in self.shelves]
        for _ in range(count):
            if self.machine.node.alarms:
                break  # the message would not be taken before the alarm is cleared
            self.published += 1
            copies = []
            properties = BasicProperties(
                message_id=str(self.published), delivery_mode=PERSISTENT if persistent else 1
            )
            if len(reached) == 1:
                exchange, key = "", reached[0]
            else:
                exchange, key, reached = "amq.fanout", "", sorted(self.shelves)
            for name in reached:
                copy = Copy(self.published, size, persistent)
                self.shelves[name].copies.append(copy)
                copies.append(copy)
            self.unconfirmed.append(copies)
            body = Random(self.published).randbytes(size)
            self.publisher.publish(exchange, key, body, properties)
        self.look()

    # --- consuming ---

    @property
    def not_consumed(self) -> list[str]:
        return sorted(name for name, shelf in self.shelves.items() if not shelf.consumed)

    @precondition(lambda self: self.not_consumed)
    @rule(data=st.data(), no_ack=st.booleans(), prefetch=st.integers(0, 4))
    def consume(self, data: st.DataObject, no_ack: bool, prefetch: int) -> None:
        name = data.draw(
            st.sampled_from(sorted(n for n, shelf in self.shelves.items() if not shelf.consumed))
        )
        tag = f"{name} {'no ack' if no_ack else 'ack'}"
        self.tags[tag] = self.shelves[name]
        self.shelves[name].consumed = tag
        self.consumer.send(m.BasicQos(prefetch_count=prefetch))
        self.consumer.send(
            m.BasicConsume(queue=name, consumer_tag=tag, no_ack=no_ack, no_wait=True, arguments={})
        )
        self.look()

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags)))
        self.consumer.send(m.BasicCancel(consumer_tag=tag, no_wait=True))
        self.look()
        self.tags.pop(tag).consumed = None

    @precondition(lambda self: self.not_consumed)
    @rule(data=st.data(), no_ack=st.booleans())
    def get(self, data: st.DataObject, no_ack: bool) -> None:
        name = data.draw(
            st.sampled_from(sorted(n for n, shelf in self.shelves.items() if not shelf.consumed))
        )
        shelf = self.shelves[name]
        self.consumer.send(m.BasicGet(queue=name, no_ack=no_ack))
        contents = self.consumer.contents()
        assert len(contents) == bool(shelf.ready)
        for content in contents:
            assert isinstance(content.method, m.BasicGetOk)
            self.delivered(shelf, content, content.method, no_ack=no_ack)
            assert content.method.message_count == len(shelf.ready)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), multiple=st.booleans(), how=st.sampled_from(["ack", "ack", "requeue", "reject"]))
    def settle(self, data: st.DataObject, multiple: bool, how: str) -> None:
        tag = data.draw(st.sampled_from(sorted(self.out)))
        taken = [each for each in sorted(self.out) if each == tag or (multiple and each < tag)]
        for each in taken:
            _, copy = self.out.pop(each)
            copy.out = False
            copy.done = how != "requeue"
        if how == "ack":
            self.consumer.send(m.BasicAck(delivery_tag=tag, multiple=multiple))
        else:
            self.consumer.send(m.BasicNack(delivery_tag=tag, multiple=multiple, requeue=how == "requeue"))
        self.look()

    @rule()
    def lose_consumer(self) -> None:
        self.return_all()
        self.consumer.hang_up()
        self.connect_consumer()
        self.look()

    def return_all(self) -> None:
        for _, copy in self.out.values():
            copy.out = False
        self.out.clear()

    # --- queues ---

    @precondition(lambda self: self.shelves)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.shelves)))
        self.look()
        ready = self.shelves[name].ready
        for copy in ready:
            copy.done = True
        (purged,) = self.ask(m.QueuePurge(queue=name))
        assert isinstance(purged, m.QueuePurgeOk)
        assert purged.message_count == len(ready)

    @precondition(lambda self: len(self.shelves) < len(NAMES))
    @rule(data=st.data())
    def declare_one(self, data: st.DataObject) -> None:
        self.declare(data.draw(st.sampled_from(sorted(set(NAMES) - set(self.shelves)))))

    def declare(self, name: str) -> None:
        self.machine.recover_from_faults()
        self.look()
        (declared,) = self.ask(m.QueueDeclare(queue=name, durable=name in DURABLE, arguments={}))
        assert isinstance(declared, m.QueueDeclareOk)
        assert declared.message_count == 0
        self.shelves[name] = Shelf(name in DURABLE)
        (bound,) = self.ask(m.QueueBind(queue=name, exchange="amq.fanout", arguments={}))
        assert isinstance(bound, m.QueueBindOk)

    @precondition(lambda self: self.shelves)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.shelves)))
        self.machine.recover_from_faults()
        self.look()
        shelf = self.shelves.pop(name)
        if shelf.consumed:
            del self.tags[shelf.consumed]
        for tag in [tag for tag, (of, _) in self.out.items() if of is shelf]:
            self.out[tag] = (Shelf(durable=False), self.out[tag][1])
        (*_, deleted) = self.ask(m.QueueDelete(queue=name))
        assert isinstance(deleted, m.QueueDeleteOk)
        assert deleted.message_count == len(shelf.ready)

    def ask(self, method: m.Method) -> list[m.Method]:
        """On a channel of its own, since what comes on the others while this waits is looked at elsewhere."""
        client = self.machine.connect()
        client.send(method)
        self.machine.run()
        answers = client.methods()
        client.hang_up()
        self.look()
        return answers

    # --- the disk ---

    @rule()
    def turn(self) -> None:
        self.machine.turn()
        self.look()

    @rule()
    def finish_round(self) -> None:
        self.machine.finish_round()
        self.look()

    @rule(count=st.integers(1, 3))
    def do_part_of_a_round(self, count: int) -> None:
        self.machine.turn()
        self.machine.disk.work(count)
        self.look()

    @rule(at=st.integers(0, 6), error=st.sampled_from([errno.ENOSPC, errno.EIO]), times=st.integers(1, 3))
    def fail(self, at: int, error: int, times: int) -> None:
        faults = self.machine.faults
        faults.fail(at=len(faults.done) + at, error=error, times=times)

    @rule()
    def memory_is_short(self) -> None:
        give_up_ready(self.machine.queues.values())

    @rule()
    def pass_time(self) -> None:
        self.machine.pass_time()
        self.look()

    @rule()
    def do_chores(self) -> None:
        self.machine.housekeeping.run()

    @rule()
    def come_to_rest(self) -> None:
        """All is written, and what can be given back is."""
        machine = self.machine
        machine.recover_from_faults()
        machine.store.tidy()
        machine.turn()
        machine.housekeeping.run()
        machine.store.write_marks()  # an ack file that was written anew takes the place of the old one,
        machine.housekeeping.run()  # which is let go
        self.look()
        assert not any(self.unconfirmed), "all is confirmed"
        assert not machine.node.alarms
        assert not machine.files.pinned
        journal = machine.store.journal
        others = len(("definitions", "directory", "lock")) + len(journal.handles) + (journal.root_handle >= 0)
        assert len(machine.open_files()) == len(machine.files.files) + others
        for name, shelf in self.shelves.items():
            self.check_space(name, shelf)

    def check_space(self, name: str, shelf: Shelf) -> None:
        """A segment is on disk if something in it is alive, or if it is a tail too small to care."""
        log = classic(self.machine.queues[name]).lane.log
        if not shelf.durable:
            return
        assert isinstance(log, QueueLog)
        assert sum(segment.alive for segment in log.segments) == len(shelf.stored)
        assert all(segment.alive for segment in log.segments[:-1])
        assert all(segment.alive or segment.end < 1_000 for segment in log.segments[-1:])
        kept = {segment.path for segment in log.segments if segment.is_made()}
        allowed = kept | self.orphans | self.not_deleted
        on_disk = [
            path
            for path in Path(log.chain.directory.path).glob("*")
            if path.suffix in {".seg", ".acks", ".new", ".idx", ".due"}
        ]
        assert {str(path).partition(".")[0] for path in on_disk} <= allowed
        assert all(Path(path + ".seg").exists() for path in kept)

    @property
    def not_deleted(self) -> set[str]:
        """Segments whose deletion has failed: the next start sees to them."""
        notes = self.machine.notes.lines
        return {fields["file"] for event, fields in notes if event == "cannot delete segment"}

    # --- the end ---

    @rule()
    def restart(self) -> None:
        self.look()
        self.return_all()
        for connection in (self.publisher, self.consumer):
            connection.hang_up()
        self.machine.stop()
        for copies in self.unconfirmed:
            for copy in copies:
                copy.confirmed = True  # all was written
        self.come_back(marks_lost=False, power_lost=False)

    @rule(seed=SEEDS)
    def kill(self, seed: int) -> None:
        self.machine.turn()
        self.look()
        marks_lost = self.machine.store.commit.marks_wait
        self.machine.kill(Random(seed))
        self.come_back(marks_lost=marks_lost, power_lost=False)

    @rule(seed=SEEDS)
    def cut_power(self, seed: int) -> None:
        self.machine.turn()
        self.look()
        self.machine.cut_power(Random(seed))
        self.come_back(marks_lost=True, power_lost=True)

    def come_back(self, *, marks_lost: bool, power_lost: bool) -> None:
        """Compare a copy of what is left with the model; then the model goes on with that."""
        found = self.read_back()
        self.shelves = {name: shelf for name, shelf in self.shelves.items() if shelf.durable}
        assert set(found) == set(self.shelves)
        for name, shelf in self.shelves.items():
            self.check_found(shelf, found[name], marks_lost=marks_lost, power_lost=power_lost)
        self.return_all()
        self.machine.start()
        self.orphans = set(self.find_orphans())
        self.connect()
        for shelf in self.shelves.values():
            shelf.consumed = None

    def find_orphans(self) -> Iterator[str]:
        """What a crash has left of segments that were deleted or just begun: nothing touches it any more."""
        for path in self.machine.data.glob("queues/*/*.*"):
            records = path.with_suffix(".seg")
            if not records.exists() or not records.stat().st_size:
                yield str(path.with_suffix(""))

    def read_back(self) -> dict[str, list[Found]]:
        copy = self.scratch / "copy"
        copy.mkdir()
        shutil.copytree(self.machine.data, copy / "data")
        other = Machine.__new__(Machine)
        try:
            Machine.__init__(other, copy, open_files_max=4, boot_id=self.machine.boot_id)
            return {name: list(self.empty(other, name)) for name in other.queues}
        finally:
            other.close()
            shutil.rmtree(copy)

    def empty(self, machine: Machine, name: str) -> list[Found]:
        queue, found = machine.queues[name], []
        count = queue.message_count
        while (entry := queue.get(no_ack=False)) is not None:
            message = entry.message
            found.append(Found(number_of(message), message.body, entry.delivery_count, message.persistent))
        assert count == len(found), f"{name} says it has {count} messages and gives {len(found)}"
        return found

    def check_found(self, shelf: Shelf, found: list[Found], *, marks_lost: bool, power_lost: bool) -> None:
        known = {copy.number: copy for copy in shelf.copies}
        numbers = [each.number for each in found]
        assert numbers == sorted(set(numbers)), "in order, and each once"
        for each in found:
            assert each.number in known, "nothing was never published"
            copy = known[each.number]
            assert copy.persistent
            assert each.persistent
            assert each.body == copy.body
            if not marks_lost:
                assert not copy.done, f"{copy} came back"
                assert each.delivery_count == copy.deliveries, copy
            if power_lost:
                assert each.delivery_count > 0, f"{copy} came back as if never delivered"
        for copy in shelf.copies:
            if copy.persistent and copy.confirmed and not copy.done:
                assert copy.number in numbers, f"{copy} is lost"
        for copy in shelf.copies:
            copy.out, copy.done = False, copy.number not in numbers
        for each in found:
            known[each.number].deliveries = each.delivery_count

    # --- what the clients see ---

    def look(self) -> None:
        """Take in all that the broker said."""
        for method in self.publisher.methods():
            if isinstance(method, m.BasicAck):
                self.take_confirm(method)
        for content in decode_contents(frame for frame in self.consumer.frames() if frame.channel == 1):
            assert isinstance(content.method, m.BasicDeliver)
            tag = content.method.consumer_tag
            self.delivered(self.tags[tag], content, content.method, no_ack=tag.endswith("no ack"))
        assert not self.machine.world.errors, self.machine.world.errors

    def take_confirm(self, ack: m.BasicAck) -> None:
        first = ack.delivery_tag if not ack.multiple else self.confirmed_count + 1
        assert first == self.confirmed_count + 1, "confirms come in order"
        durable = [name for name, shelf in self.shelves.items() if shelf.durable]
        safe = {name: set(map(number_of, self.machine.safe_messages(name))) for name in durable}
        for index in range(self.confirmed_count, ack.delivery_tag):
            for copy in self.unconfirmed[index]:
                copy.confirmed = True
                self.check_is_safe(copy, safe)
            self.unconfirmed[index] = []
        self.confirmed_count = ack.delivery_tag

    def check_is_safe(self, copy: Copy, safe: dict[str, set[int]]) -> None:
        if copy.persistent and not copy.done:
            for name, shelf in self.shelves.items():
                if shelf.durable and copy in shelf.copies:
                    assert copy.number in safe[name], f"{copy} was confirmed too early"

    def delivered(
        self, shelf: Shelf, content: Content[m.Method], method: m.BasicDeliver | m.BasicGetOk, *, no_ack: bool
    ) -> None:
        copy = shelf.ready[0]
        assert content.properties.message_id == str(copy.number)
        assert content.body == copy.body
        assert method.redelivered is (copy.deliveries > 0), copy
        copy.deliveries += 1
        copy.done = no_ack
        if not no_ack:
            copy.out = True
            self.out[method.delivery_tag] = (shelf, copy)

    # --- what always holds ---

    @invariant()
    def the_queues_count_as_the_model_does(self) -> None:
        queues = self.machine.queues
        assert set(queues) == set(self.shelves)
        for name, shelf in self.shelves.items():
            assert queues[name].message_count == len(shelf.ready)
            assert queues[name].unacked == sum(copy.out for copy in shelf.copies)

    @invariant()
    def no_more_files_are_open_than_allowed(self) -> None:
        files = self.machine.files
        assert len(files.files) <= max(files.limit, 2 + len(files.pinned))


def number_of(message: Message) -> int:
    return int(message.decode_properties().message_id or 0)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=int(os.environ.get("STORE_EXAMPLES", "60")),
    stateful_step_count=40,
    report_multiple_bugs=False,
)
