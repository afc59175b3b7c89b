"""A world without chance, for schedules that are written down: what happens is what the schedule says."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.simulation.disk import DiskRules
from tests.cluster.simulation.etcd import Request
from tests.cluster.simulation.node import Node
from tests.cluster.simulation.world import SETTINGS, TICK, World
from warren.cluster import config
from warren.cluster.config import ShardRecord
from warren.cluster.effects import Role
from warren.cluster.settings import Rules, Settings
from warren.cluster.transactions import Outcome
from warren.storage.replication import LogId

LOG = LogId(1)
WAIT = 60.0  # seconds of the simulated time, at the most


class Stage(World):
    def __init__(
        self,
        rules: Rules | None = None,
        disk_rules: DiskRules | None = None,
        *,
        nodes: int = 3,
        settings: Settings = SETTINGS,
    ) -> None:
        super().__init__(
            0, rules=rules, disk_rules=disk_rules, nodes=nodes, shards=1, settings=settings, steady=True
        )
        self.is_calm = True
        self.etcd.watch_loss = 0.0
        self.held: list[Request] = []  # compare-and-swaps that etcd does not see yet
        self.holds: Callable[[Request], bool] = lambda _: False
        self.without_etcd: set[int] = set()  # nodes that do not reach it
        self.reads_wait = False  # nobody gets bytes of segments

    # --- what the schedule decides ---

    def serve_etcd(self, request: Request) -> None:
        if request.node in self.without_etcd:
            if request.record is not None and self.nodes[request.node].life == request.life:
                self.answer_unknown(request)
            return
        is_there = request.node not in self.etcd.refuses
        if is_there and request.record is not None and self.holds(request):
            self.held.append(request)
        else:
            super().serve_etcd(request)

    def watch(self, node: Node) -> None:
        if node.place in self.without_etcd:
            self.etcd.watches[node.place].popleft()
        else:
            super().watch(node)

    def _settle_node(self, node: Node) -> None:
        waiting = node.reads
        if self.reads_wait:
            node.reads = []
        super()._settle_node(node)
        if self.reads_wait:
            node.reads = waiting + node.reads

    def answer_unknown(self, request: Request) -> None:
        """Who sent this gives up on it; etcd may carry it out yet."""
        node = self.nodes[request.node]
        node.participant.shards[request.shard].cas_answered(request.revision, Outcome.UNKNOWN, node.now())
        node.carry_out()

    def carry_out_held(self) -> None:
        for request in self.held:
            self.etcd.swap(request)
        self.held = []
        self.check_records()

    def run_for(self, seconds: float) -> None:
        end = self.time + seconds
        while self.time < end:
            self.settle()

    def until(self, condition: Callable[[], bool]) -> None:
        end = self.time + WAIT
        while not condition():
            assert self.time < end, f"it did not happen: {self.record}, {self.roles()}"
            self.settle()

    def cut(self, one: Node, *others: Node) -> None:
        """Nothing passes between these any more, and nobody is told."""
        for other in others:
            self.network.cuts.update(((one.place, other.place), (other.place, one.place)))

    def join(self) -> None:
        self.network.cuts.clear()

    def add(self, shard: int, node: Node) -> None:
        """A store begins to join, in nobody's place."""
        known = self.etcd.records[shard]
        self._write(shard, known, config.add(known.record, node.store, min_in_sync=2))

    def remove(self, shard: int, node: Node) -> None:
        """A store does not keep a shard any more."""
        known = self.etcd.records[shard]
        self._write(shard, known, config.remove(known.record, node.store, min_in_sync=2))

    # --- what can be seen ---

    @property
    def record(self) -> ShardRecord:
        return self.etcd.records[0].record

    def roles(self) -> list[str]:
        return [node.participant.shards[0].role.name if node.is_up else "DOWN" for node in self.nodes]

    def is_open(self, node: Node) -> bool:
        return node.is_up and node.participant.shards[0].role is Role.OPEN

    def leader(self) -> Node:
        (node,) = [node for node in self.nodes if self.is_open(node)]
        return node

    def isr(self) -> set[str]:
        return set(self.record.isr)

    def publish(self, node: Node, count: int = 1) -> None:
        assert node.publish(0, LOG, count), f"{node.store} takes nothing: {self.roles()}"

    def confirmed(self) -> int:
        return self.checks.count

    def begin(self) -> tuple[Node, Node, Node]:
        """The first node leads, all are in sync, and a message is confirmed."""
        a, b, c = self.nodes[:3]
        self.until(lambda: self.is_open(a) and len(self.isr()) == len(self.record.replicas))
        self.publish(a)
        self.until(lambda: self.confirmed() >= 1)
        return a, b, c

    def deliver_all(self) -> None:
        """Every node that may deliver something does."""
        for node in self.nodes:
            if node.is_up and node.paused_until <= self.time:
                node.deliver(0, acks=0.0)

    def wait(self, seconds: float) -> None:
        """Time passes in small steps, and whoever may deliver does."""
        end = self.time + seconds
        while self.time < end:
            self.settle(TICK / 5)
            self.deliver_all()
