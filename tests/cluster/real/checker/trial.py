"""A whole run: applications work, faults come and go, all is healed, queues are drained, and what the
applications saw is checked.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.cluster.real.checker.checks import Reason, check_queue, repeats, without_leader
from tests.cluster.real.checker.client import OFFSET, Link
from tests.cluster.real.checker.history import History, Outcome, Term
from tests.cluster.real.checker.nemesis import Nemesis
from tests.cluster.real.checker.stream_checks import check_stream
from tests.cluster.real.checker.workload import Application, Consumer, Maker, Publisher, Reader, note
from tests.cluster.real.host_cluster import NAMES, HostCluster
from tests.support.process import Address
from warren.amqp.table import Table
from warren.client.errors import ClientError

HEALED_SECONDS_MAX = 180.0  # after healing, until everything works
SILENT_SECONDS_MAX = 60.0  # without any delivery, though some are due
ASK_SECONDS = 0.1
LAST_READER = "last"
ROLE, OPEN = "a shard's role", "open"  # an event of a broker's log


class Kind(NamedTuple):
    """A queue of the workload."""

    arguments: Table
    publishers: int = 1
    consumers: int = 1
    priorities: int = 1
    is_stream: bool = False


BALANCED: Table = {"x-queue-leader-locator": "balanced"}
QUORUM: Table = {**BALANCED, "x-queue-type": "quorum", "x-delivery-limit": 1_000}
QUEUES = {
    "quorum1": Kind(QUORUM),
    "quorum2": Kind(QUORUM, publishers=2),
    "classic": Kind(BALANCED),
    "urgent": Kind({**BALANCED, "x-max-priority": 3}, priorities=3),
    "shared": Kind(QUORUM, publishers=2, consumers=2),
    "stream": Kind({**BALANCED, "x-queue-type": "stream"}, publishers=2, consumers=2, is_stream=True),
}


class Trial:
    """To be run by a thread that is a client of the cluster."""

    def __init__(self, cluster: HostCluster, seed: int, path: Path) -> None:
        self.cluster = cluster
        self.path = path
        self.log = logging.getLogger(__name__)
        self.history = History()
        self.nemesis = Nemesis(cluster, Random(seed), self.history)
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self.maker = Maker("maker", "made", NAMES, self._find, self.history)
        self.wrong: list[str] = []
        self.healed_after = 0.0  # seconds that it took at most to work again after healing

    # --- the run ---

    def run(self, seconds: float) -> list[str]:
        """What is wrong, if anything is."""
        self._declare()
        self._start()
        try:
            self._wait_until_served()
            self.nemesis.run(time.time() + seconds, self._wait_until_served)
            self.nemesis.heal()
            self._wait_until_served()
            self._check_leaders()
            _end([*self.publishers, self.maker])
            self._wait_for_deliveries()
        finally:
            _end(self._applications())
            self.history.terms += terms_of(self.cluster.path)
            self.history.save(self.path / "history.jsonl")
        try:
            self._drain()
        finally:
            self.history.save(self.path / "history.jsonl")
        self._check()
        return self.wrong

    def _declare(self) -> None:
        for queue in QUEUES:
            self._at_leader(queue).close()
            self.history.shard_of[queue] = self.cluster.placed(queue).shard

    def _start(self) -> None:
        for queue, kind in QUEUES.items():
            for number in range(kind.publishers):
                publisher = Publisher(f"p{number}-{queue}", queue, NAMES, self._find, self.history)
                publisher.priorities = kind.priorities
                self.publishers.append(publisher)
            for number in range(kind.consumers):
                make = Reader if kind.is_stream else Consumer
                self.consumers.append(make(f"c{number}-{queue}", queue, NAMES, self._find, self.history))
        for application in self._applications():
            application.start()

    def _applications(self) -> list[Application]:
        return [*self.publishers, *self.consumers, self.maker]

    def _find(self, name: str) -> Address:
        return self.cluster.brokers[name].address

    # --- after healing ---

    def _wait_until_served(self) -> None:
        """Every publisher gets a confirm of something new, and a queue can be made and deleted."""
        begun = time.time()
        before = self._progress()
        self._wait_for(
            lambda: all(count > before[name] for name, count in self._progress().items()),
            "not served after healing",
        )
        self.healed_after = max(self.healed_after, time.time() - begun)

    def _wait_for(self, holds: Callable[[], bool], otherwise: str) -> None:
        deadline = time.time() + HEALED_SECONDS_MAX
        while not holds():
            assert time.time() < deadline, f"{otherwise}: {self._progress()}"
            for each in self._applications():
                assert each.failure is None, each.failure
            self.nemesis.check_running()
            time.sleep(ASK_SECONDS)

    def _progress(self) -> dict[str, int]:
        """How much each of those applications has done that change something."""
        return {
            **{each.name: each.confirmed for each in self.publishers},
            self.maker.name: self.maker.completed,
        }

    def _check_leaders(self) -> None:
        """By etcd: each shard has a leader that runs."""

        def wrong() -> list[str]:
            records = self.cluster.shards()
            leaders = {
                number: None if record.leader is None else record.leader.run
                for number, record in records.items()
            }
            runs = [facts["run"] for facts in self.cluster.node_facts().values()]
            return without_leader(leaders, runs, int(self.cluster.settings["cluster_shards"]))

        self._wait_for(lambda: not wrong(), "a shard has no leader")

    def _wait_for_deliveries(self) -> None:
        """Until all that was confirmed has come, or nothing comes any more: checks say then what is lost."""
        awaited = {each.message for each in self.history.publishes if each.outcome is Outcome.CONFIRMED}
        seen, heard = 0, time.time()
        while awaited and time.time() < heard + SILENT_SECONDS_MAX:
            new = self.history.deliveries[seen:]
            if new:
                seen, heard = seen + len(new), time.time()
                awaited.difference_update(each.message for each in new)
            time.sleep(ASK_SECONDS)

    def _drain(self) -> None:
        """Take what is left in queues: duplicates, and what was never confirmed."""
        for queue, kind in QUEUES.items():
            with self._at_leader(queue) as link:
                if kind.is_stream:
                    self._read_all(link, queue)
                else:
                    self._take_all(link, queue)

    def _at_leader(self, queue: str) -> Link:
        found: list[Link] = []

        def is_found() -> bool:
            for name in NAMES:
                try:
                    link = Link(self._find(name), LAST_READER)
                except ClientError:
                    continue
                try:
                    link.declare(queue, QUEUES[queue].arguments)
                except ClientError:
                    link.close()
                else:
                    found.append(link)
                    return True
            return False

        self._wait_for(is_found, f"queue {queue} has no leader")
        return found[0]

    def _take_all(self, link: Link, queue: str) -> None:
        while (arrived := link.get(queue)) is not None:
            delivery = note(self.history, queue, LAST_READER, arrived)
            delivery.acked = time.time()
            link.ack(arrived.delivery_tag)

    def _read_all(self, link: Link, queue: str) -> None:
        """Up to a message that is published now."""
        link.confirm()
        link.publish(queue, b"end of the stream", 0)
        link.consume(queue, prefetch=1_000, arguments={OFFSET: 0})
        while True:
            for arrived in link.take_arrived():
                if arrived.body == b"end of the stream":
                    return
                note(self.history, queue, LAST_READER, arrived)
                link.ack(arrived.delivery_tag)
            if not link.arrived:  # something arrives while acks are sent
                link.receive(HEALED_SECONDS_MAX)

    # --- what came of it ---

    def _check(self) -> None:
        self.wrong += [*self.nemesis.wrong, *self.maker.wrong]
        reasons: Counter[Reason] = Counter()
        for queue, kind in QUEUES.items():
            part = self.history.of_queue(queue)
            if kind.is_stream:
                found = check_stream(part, last_reader=LAST_READER)
            else:
                found = check_queue(part, ordered=kind.consumers == 1)
                reasons += repeats(part).reasons
            self.wrong += [f"{queue}: {line}" for line in found]
        for line in self._summary(reasons):
            self.log.info("%s", line)

    def _summary(self, reasons: Counter[Reason]) -> Iterator[str]:
        history = self.history
        outcomes = Counter(each.outcome for each in history.publishes)
        kinds = Counter(each.kind for each in history.faults if each.kind not in {"heal", "ended"})
        lost = sum("lost: " in line for line in self.wrong)
        yield f"published: {_counted(outcomes)}; lost: {lost}"
        yield f"delivered: {len(history.deliveries)}; again: {_counted(reasons) or 'none'}"
        yield f"faults: {sum(kinds.values())}: {_counted(kinds)}"
        yield f"terms of leaders: {len(history.terms)}; queues made anew: {self.maker.completed}"
        longest, queue = max((_longest_silence(history, queue), queue) for queue in QUEUES)
        yield f"longest time without a confirm: {longest:.1f} s, in {queue}"
        yield f"longest time until all was served after healing: {self.healed_after:.1f} s"


def _end(applications: list[Application]) -> None:
    for each in applications:
        each.is_over.set()
    for each in applications:
        each.join()


def _counted(counter: Counter[str] | Counter[Outcome] | Counter[Reason]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(counter.items()))


def _longest_silence(history: History, queue: str) -> float:
    times = sorted(
        each.ended for each in history.publishes if each.queue == queue and each.outcome is Outcome.CONFIRMED
    )
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def terms_of(path: Path) -> Iterator[Term]:
    """When shards were opened, as brokers log it. Their logs have the names of nodes."""
    for log in sorted(path.glob("*.log")):
        for line in log.read_text().splitlines():
            if ROLE not in line:
                continue
            told = json.loads(line)
            if told.get("event") == ROLE and told["role"] == OPEN:
                at = datetime.fromisoformat(told["timestamp"]).timestamp()
                yield Term(told["shard"], told["epoch"], log.name.partition(".")[0], at)
