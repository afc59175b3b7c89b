"""One run: a scheduler that takes every decision from one seed.

Each step lets some time pass and does one thing: a message arrives, a disk syncs, etcd answers, a clock
ticks, a client publishes or consumes, or something breaks. In the end everything is healed, and the shards
must confirm again, all stores must be in sync and have the same files.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.cluster.simulation.balancing import Registry, propose, true_stores
from tests.cluster.simulation.checks import Checks
from tests.cluster.simulation.disk import DiskRules, Violation
from tests.cluster.simulation.endurance import endure
from tests.cluster.simulation.etcd import ANSWER_LATE, BALANCER, Etcd, Request
from tests.cluster.simulation.faults import FAULTS
from tests.cluster.simulation.network import Network
from tests.cluster.simulation.node import Node
from warren.cluster import config
from warren.cluster.clearing import is_named
from warren.cluster.config import Known, ShardRecord, StoreId
from warren.cluster.effects import CasAnswer, Role
from warren.cluster.known_stores import IN
from warren.cluster.placement import changes
from warren.cluster.settings import Rules, Settings
from warren.storage.replication import LogId

SETTINGS = Settings(
    readmission_first=0.2,
    readmission_last=1.0,
    record_read_every=3.0,
    preferred_after=4.0,
    session_silence=2.0,
    failure_patience=2.0,
    logs_a_turn=1,
)
TICK = 0.1
TICK_EVERY = (
    0.2  # in a run with faults: most of what a node does by itself is to see that there is nothing to do
)
STEPS = 2000
PACES = (
    (0.045, 0.037),
    (0.045, 0.075),
    (0.09, 0.018),
    (0.018, 0.03),
    (0.15, 0.03),
)  # time of a step, faults
HEAL_ROUNDS = 400  # of TICK each
QUEUE = 600  # messages on a line, at the most: the sender would wait


class World:
    def __init__(
        self,
        seed: int,
        *,
        rules: Rules | None = None,
        disk_rules: DiskRules | None = None,
        nodes: int = 3,
        replicas: int = 3,
        shards: int = 2,
        as_bytes: bool = False,
        settings: Settings = SETTINGS,
        steady: bool = False,
    ) -> None:
        self.chance = random.Random(seed)  # takes every decision
        self.rules = rules or Rules()  # of the protocol
        self.disk_rules = disk_rules or DiskRules()  # of what the simulator plays
        self.settings = settings
        self.shards = shards  # how many
        self.time = 0.0  # the true one, which no node knows
        self.numbers = 0  # of the last record
        self.sessions = 0  # how many were opened
        self.leaderships = 0  # how many terms there were
        self.cleared = 0  # how often a store removed what it did not keep any more
        self.is_restored = False  # etcd, from an old copy of it
        self.losses = 0  # how often a store has told that etcd had lost something
        self.opened: set[tuple[int, int]] = set()  # shards and epochs
        self.logs: list[list[LogId]] = [[LogId(1), LogId(2, "priority-1")] for _ in range(shards)]
        self.last_queue = 2  # the highest number of a queue
        self.tick_at = 0.0  # when the next node ticks
        self.tick_every = TICK if steady else TICK_EVERY
        self.by_store: dict[str, Node] = {}
        self.registry = Registry()  # of the nodes, in etcd
        self.nodes = [Node(self, place) for place in range(nodes)]
        self.replicas = replicas  # of each shard
        first = config.create(
            tuple(node.store for node in self.nodes[:replicas]), min_in_sync=settings.min_in_sync
        )
        self.etcd = Etcd(self.chance, nodes, [first] * shards, compares=self.disk_rules.compare)
        self.checks = Checks(shards, settings.min_in_sync)
        self.network = Network(self, as_bytes=as_bytes)
        self.network.add_nodes(self.nodes)
        self.stride, self.trouble = self.chance.choice(PACES)
        self.is_calm = False  # nothing breaks any more
        self.is_healed = True  # all stores were in sync since the last one was lost
        for node in self.nodes:
            if not steady:
                node.rate = self.chance.uniform(0.92, 1.08)
                node.offset = self.chance.uniform(0.0, 100.0)
            node.boot()

    def new_session(self) -> int:
        self.sessions += 1
        return self.sessions

    def delete_log(self, shard: int, log: LogId) -> None:
        self.last_queue += 1
        self.logs[shard][self.logs[shard].index(log)] = LogId(self.last_queue)

    # --- etcd ---

    def serve_etcd(self, request: Request) -> None:
        """Etcd carries out a request; its answer may take its time."""
        answer = self.etcd.serve(request, calm=self.is_calm)
        self.check_records()
        if answer is not None:
            if not self.is_calm and self.chance.random() < ANSWER_LATE:
                self.etcd.answers.append((request, answer))
            else:
                self.answer(request, answer)

    def answer(self, request: Request, answer: CasAnswer) -> None:
        node = self.nodes[request.node]
        if not node.is_up or node.life != request.life:
            return
        shard = node.participant.shards[request.shard]
        if request.number == BALANCER:
            if isinstance(answer, Known):
                shard.learn(answer, node.now())
        elif request.record is None:
            assert isinstance(answer, Known)
            if request.number:
                shard.gone_confirmed(request.number, answer, node.now())
            else:
                shard.record_read(request.asked, answer, node.now())
        else:
            shard.cas_answered(request.revision, answer, node.now())
        node.carry_out()

    def watch(self, node: Node) -> None:
        shard, known = self.etcd.watches[node.place].popleft()
        if node.is_up:
            node.participant.shards[shard].learn(known, node.now())
            node.carry_out()

    def check_records(self) -> None:
        """Look at every change of a record since the last time."""
        for shard, old, new in self.etcd.history:
            self.checks.record_changed(shard, old, new)
            came = set(new.isr) - set(old.isr)
            for node in self.nodes:
                if node.store in came:
                    leader = self.leader_disk(new)
                    self.checks.admitted(shard, new.epoch, leader.disk if leader else None, node.disk)
        self.etcd.history.clear()

    def leader_disk(self, record: ShardRecord) -> Node | None:
        for node in self.nodes:
            if record.leader is not None and node.store == record.leader.store:
                return node
        return None

    def operate(self, shard: int) -> None:
        """An operator who sees everything changes what should change of a shard now."""
        records = {number: known.record for number, known in enumerate(self.etcd.records)}
        made = changes(records, true_stores(self), min_in_sync=self.settings.min_in_sync)
        if shard in made:
            self._write(shard, self.etcd.records[shard], made[shard])

    def move(self, shard: int, leaver: StoreId | None = None) -> None:
        """The balancer moves a replica to a node that has none."""
        known = self.etcd.records[shard]
        record = known.record
        free = [n.store for n in self.nodes if n.store not in record.replicas]
        if free and not record.joining and not record.leaving:
            leaver = leaver or self.chance.choice(record.replicas)
            least = self.settings.min_in_sync
            self._write(shard, known, config.add(record, free[0], instead_of=leaver, min_in_sync=least))

    def _write(self, shard: int, known: Known, record: ShardRecord) -> None:
        self.etcd.swap(Request(0, 0, shard, known.revision, record))
        self.check_records()

    # --- steps ---

    def step(self) -> None:
        chance = self.chance
        self.time += chance.random() * self.stride
        x = chance.random()
        if x < 0.5:
            lines = self.network.ready()
            if not lines:
                self._ordinary(0.5 + x)
            else:
                line = lines[int(chance.random() * len(lines))]
                for _ in range(min(len(line.items), 1 + int(chance.random() * 4))):
                    if line.items and line.lives[1] == line.receiver.life and line.receiver.is_up:
                        self.network.arrive(line)
        else:
            self._ordinary(x)
        if chance.random() < self.trouble:
            self._fault()
        if self.time >= self.tick_at:
            self._ticks()

    def _ticks(self) -> None:
        time = self.time
        due = [time + self.tick_every]
        for node in self.nodes:
            if not node.is_up:
                continue
            if node.paused_until > time:
                due.append(node.paused_until)
                continue
            if node.tick_at <= time:
                node.tick_at = time + self.tick_every * (0.5 + self.chance.random())
                node.participant.tick(node.now())
                node.carry_out()
            due.append(node.tick_at)
        self.tick_at = min(due)

    def _ordinary(self, x: float) -> None:
        chance, etcd = self.chance, self.etcd
        if x < 0.63:
            self._etcd_step(x)
            return
        node = self.nodes[int(chance.random() * len(self.nodes))]
        if not node.is_up or node.paused_until > self.time:
            return
        if x < 0.72:
            if not node.is_failing:
                node.sync()
        elif x < 0.77:
            for _ in range(min(len(node.reads), 4)):
                node.answer_read()
        elif x < 0.8:
            if etcd.watches[node.place] and etcd.serves(node.place):
                self.watch(node)
        elif x < 0.81:
            self._look_after_one(node)
        else:
            self._client(node, x)

    def _look_after_one(self, node: Node) -> None:
        if self.chance.random() < 0.5:
            propose(self, node)
        else:
            node.clear(int(self.chance.random() * self.shards))

    def _etcd_step(self, x: float) -> None:
        chance, etcd = self.chance, self.etcd
        if x >= 0.61:
            if etcd.answers:
                self.answer(*etcd.answers.pop(int(chance.random() * len(etcd.answers))))
        elif etcd.requests and etcd.is_up:
            self.serve_etcd(etcd.requests.pop(int(chance.random() * len(etcd.requests))))

    def _client(self, node: Node, x: float) -> None:
        chance = self.chance
        shard = int(chance.random() * self.shards)
        here = node.participant.shards[shard]
        if here.leader is None:  # most shards are led elsewhere
            for other in self.nodes:
                if (
                    other.is_up
                    and other.paused_until <= self.time
                    and other.participant.shards[shard].leader is not None
                ):
                    node = other
                    break
            else:
                return
        if node.participant.shards[shard].role is Role.OPENING:
            node.recover(shard)
        elif x < 0.89:
            log = self.logs[shard][int(chance.random() * len(self.logs[shard]))]
            node.publish(shard, log, 1 + int(chance.random() * 3))
        elif x < 0.985:
            node.deliver(shard)
        elif x < 0.993:
            node.retain(shard, chance.choice(self.logs[shard]))
        elif x < 0.995:
            node.delete_log(shard, chance.choice(self.logs[shard]))
        else:
            node.expire(shard, chance.choice(self.logs[shard]))

    # --- faults ---

    def _fault(self) -> None:
        x = self.chance.random()
        for bound, fault in FAULTS:
            if x < bound:
                fault(self)
                return

    def crash(self, node: Node) -> None:
        node.crash()
        for other in self.nodes:
            if other is not node and self.chance.random() < 0.7:
                self.notice(other, node)

    def end_leaving(self, node: Node) -> None:
        """A process that was told to end does."""
        if node.is_up and node.participant.node.is_leaving:
            self.crash(node)

    def notice(self, node: Node, gone: Node) -> None:
        """A node finds that a connection has ended, and calls again: refused, if no process is there."""
        a, b = (node, gone) if node.place < gone.place else (gone, node)
        self.network.disconnect(a, b)
        cut = (node.place, gone.place) in self.network.cuts or (gone.place, node.place) in self.network.cuts
        if node.is_up and not gone.is_up and not cut and node.paused_until <= self.time:
            node.participant.peer_gone(gone.store, node.now())
            node.carry_out()

    def damage(self, node: Node, shard: int) -> bool:
        for log, segments in node.disk.memory.shards[shard].items():
            for base in sorted(segments)[:-1]:
                durable = node.disk.durable.shards[shard].get(log, {}).get(base)
                if durable is not None and durable.epoch == segments[base].epoch:
                    durable.damaged = segments[base].damaged = True
                    self.is_healed = False
                    self.checks.excused.add((node.disk.store, shard))
                    if node.is_up:
                        node.participant.shards[shard].damage_found(node.now())
                        node.carry_out()
                    return True
        return False

    def look_whether_healed(self) -> None:
        excused = self.checks.excused
        for node in self.nodes:
            for shard in range(self.shards):
                if (node.disk.store, shard) in excused and not self.checks.is_excused(shard, node.disk):
                    excused.discard((node.disk.store, shard))
        if self.is_healed or excused:
            return
        there = {node.store for node in self.nodes if node.is_up}
        self.is_healed = all(
            len(known.record.isr) == 3
            and there.issuperset(known.record.isr)
            and known.record.leader is not None
            for known in self.etcd.records
        )

    # --- a run ---

    def run(self, steps: int = STEPS) -> None:
        for number in range(steps):
            self.step()
            if number % 50 == 0:
                self.look_whether_healed()
                self._shorten()
        self.heal()

    def _shorten(self) -> None:
        """A line that is too long: its connection ends."""
        for line in self.network.lines:
            if len(line.items) > QUEUE:
                a, b = sorted((line.sender, line.receiver), key=lambda node: node.place)
                self.network.disconnect(a, b)

    def settle(self, seconds: float = TICK) -> None:
        """All that can happen without faults happens, and some time passes."""
        self._settle_links()
        for _ in range(4):
            for line in self.network.ready():
                for _ in range(len(line.items)):
                    self.network.arrive(line)
            for node in self.nodes:
                if node.is_up and node.paused_until <= self.time:
                    self._settle_node(node)
            if self.etcd.is_up:
                requests, self.etcd.requests = self.etcd.requests, []
                for request in requests:
                    self.serve_etcd(request)
        self.time += seconds
        self._ticks()

    def _settle_links(self) -> None:
        for a, b in self.network.is_connected:
            one, other = self.nodes[a], self.nodes[b]
            if self.network.may_connect(one, other):
                self.network.connect(one, other)
            elif self.network.is_stale(one, other):
                self.network.disconnect(one, other)
            elif not one.is_up or not other.is_up:
                self.notice(one, other)
                self.notice(other, one)

    def _settle_node(self, node: Node) -> None:
        while node.reads:
            node.answer_read()
        if not node.is_failing:
            node.sync()
        while self.etcd.watches[node.place] and self.etcd.serves(node.place):
            self.watch(node)

    def _repair(self) -> None:
        """All is up again, and works."""
        self.is_calm = True
        self.network.cuts.clear()
        self.etcd.is_up = True
        self.etcd.is_read_only = False
        self.etcd.refuses.clear()
        while self.etcd.answers:
            self.answer(*self.etcd.answers.pop())
        self.registry.states = [IN] * len(self.nodes)
        for node in self.nodes:
            node.paused_until = 0.0
            node.is_failing = False
            self.end_leaving(node)
            if node.is_up:
                node.participant.disk_works()
                node.participant.node.is_draining = False
            else:
                node.boot()

    def heal(self) -> None:
        """L1, L2: all is up again, so all shards open, confirm, and get all stores into sync."""
        self._repair()
        before = [0] * self.shards
        for number in range(HEAL_ROUNDS):
            if number % 4 == 0:
                self._look_after()
            self.settle()
            for shard in range(self.shards):
                for node in self.nodes:
                    if before[shard] < 3 and node.publish(shard, self.logs[shard][0]):
                        before[shard] += 1
            if number % 5 == 0 and min(before) >= 3 and self._is_whole():
                break
        else:
            raise Violation(f"L1, L2: not healed: {[known.record for known in self.etcd.records]}")
        self._compare_files()

    def _look_after(self) -> None:
        """All nodes look at where shards are, and what they keep no more."""
        for node in self.nodes:
            propose(self, node)
            for shard in range(self.shards):
                node.clear(shard)

    def _is_whole(self) -> bool:
        records = {number: known.record for number, known in enumerate(self.etcd.records)}
        if changes(records, true_stores(self), min_in_sync=self.settings.min_in_sync):
            return False
        for node in self.nodes:
            for shard, record in records.items():
                if node.disk.memory.shards[shard] and not is_named(node.store, record):
                    return False
        for shard, known in enumerate(self.etcd.records):
            record = known.record
            leader = self.leader_disk(record)
            if leader is None or record.joining or record.leaving or len(record.isr) != len(record.replicas):
                return False
            here = leader.participant.shards[shard]
            if here.role is not Role.OPEN or here.leader is None or here.leader.commit < here.leader.index:
                return False
            if len(record.replicas) != self.replicas or here.leader.stopped_at is not None:
                return False
        return True

    def _compare_files(self) -> None:
        """All stores of a shard have the same files."""
        for _ in range(3):
            self.settle()
        for shard, known in enumerate(self.etcd.records):
            files = {}
            for node in self.nodes:
                if node.store in known.record.isr:
                    logs = node.disk.durable.shards[shard]
                    files[node.store] = {
                        log: [segments[base].contents() for base in sorted(segments)]
                        for log, segments in logs.items()
                        if segments
                    }
            first, *others = files.values()
            for other in others:
                if other != first:
                    raise Violation(f"the files of shard {shard} differ: {files}")


SHAPES = {0: (4, 3, 2), 1: (5, 3, 2), 3: (5, 5, 3), 4: (4, 3, 2), 6: (2, 2, 1)}
# nodes, replicas, in sync at the least; by seed modulo 8
ENDURANCE_EVERY = 3  # seeds: it takes as long as to heal


def run_seed(
    seed: int, rules: Rules | None = None, disk_rules: DiskRules | None = None, steps: int = STEPS
) -> World:
    """One run. Most have three nodes; every sixteenth sends bytes and not objects."""
    nodes, replicas, least = SHAPES.get(seed % 8, (3, 3, 2))
    world = World(
        seed,
        rules=rules,
        disk_rules=disk_rules,
        nodes=nodes,
        replicas=replicas,
        settings=replace(SETTINGS, min_in_sync=least),
        as_bytes=seed % 16 == 5,
    )
    world.run(steps)
    if seed % ENDURANCE_EVERY == 0:
        endure(world)
        world.heal()
    return world
