"""Faults by chance, from one seed: some at a time, healed after a while, then the next ones.

All that is random is drawn before a fault is made, so the same seed makes the same faults at about the same
times; what the cluster makes of them depends on the machine.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tests.cluster.real.checker.history import FaultTold, History
from tests.cluster.real.host_cluster import ETCD, NAMES, HostCluster

STOP_SECONDS_MAX = 60.0
FULL_DISK_SECONDS_MAX = 30.0  # a broker that was started on a full disk may take so long to see it, and end
BALLAST = "ballast"  # the file that fills a disk
AT_ONCE = (1, 1, 1, 2, 2, 3)  # faults at a time
MAKING_SECONDS = 3.0  # at most, between faults that hold at once
HOLDING_SECONDS = (0.3, 7.0)
HEALING_SECONDS = 1.5
REST_SECONDS = 3.0


class Fault(NamedTuple):
    """A fault that holds."""

    kind: str
    what: str
    parts: frozenset[str]  # of the cluster, which nothing else may be done to meanwhile
    heal: Callable[[], None]


class Nemesis:
    def __init__(self, cluster: HostCluster, rng: Random, history: History) -> None:
        self.cluster = cluster
        self.rng = rng
        self.log = logging.getLogger(__name__)
        self.history = history
        self.holding: list[Fault] = []
        self.healed_disks: dict[str, float] = {}  # when each disk was not full any more
        self.wrong: list[str] = []  # what brokers did that they should not have

    def run(self, until: float, is_served: Callable[[], None]) -> None:
        """Make faults and heal them until this time; `is_served` is called at times when all are healed, and
        returns when the cluster works again.
        """
        while time.time() < until:
            self._round(is_served)

    def _round(self, is_served: Callable[[], None]) -> None:
        rng = self.rng
        for _ in range(rng.choice(AT_ONCE)):
            kind = rng.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])[0]
            self._make(kind, rng.sample(NAMES, len(NAMES)))
            _wait(rng.uniform(0, MAKING_SECONDS))
        _wait(rng.uniform(*HOLDING_SECONDS))
        self.check_running()
        self.heal()
        if rng.random() < 0.5:
            is_served()
        _wait(rng.uniform(0, REST_SECONDS))

    def _make(self, kind: str, names: Sequence[str]) -> None:
        """Make a fault, unless something is done already to what it is about."""
        fault = FAULTS[kind][1](self, names)
        if fault is not None:
            self._tell(fault.kind, fault.what)
            self.holding.append(fault)

    def heal(self) -> None:
        """End all faults, one after the other."""
        self.rng.shuffle(self.holding)
        while self.holding:
            fault = self.holding.pop()
            fault.heal()
            self._tell("heal", f"{fault.kind} {fault.what}")
            _wait(self.rng.uniform(0, HEALING_SECONDS))

    def check_running(self) -> None:
        """No broker has ended by itself. One that did is started again: if its disk was full, it may have."""
        for name in NAMES:
            if self._is_used(f"broker {name}", f"disk {name}") or self.cluster.is_running(name):
                continue
            broker = self.cluster.brokers[name]
            broker.kill()  # which closes what is open still
            told = f"broker {name} has ended by itself, with {broker.process.returncode}"
            self._tell("ended", told)
            if time.time() - self.healed_disks.get(name, 0.0) > FULL_DISK_SECONDS_MAX:
                self.wrong.append(told)
            self.cluster.launch(name)

    def _tell(self, kind: str, what: str) -> None:
        self.history.faults.append(FaultTold(time.time(), kind, what))
        self.log.info("%s %s", kind, what)

    def _is_used(self, *parts: str) -> bool:
        return any(part in fault.parts for fault in self.holding for part in parts)

    # --- brokers ---

    def kill(self, *names: str) -> Fault | None:
        parts = frozenset(f"broker {name}" for name in names)
        if self._is_used(*parts):
            return None
        self.cluster.kill(*names)
        return Fault("kill", " ".join(names), parts, lambda: self._launch(*names))

    def kill_and_start(self, *names: str) -> Fault | None:
        """As systemd does: it is back at once."""
        fault = self.kill(*names)
        if fault is None:
            return None
        self._launch(*names)
        return Fault("kill and start", fault.what, frozenset(), _nothing)

    def _launch(self, *names: str) -> None:
        for name in names:
            self.cluster.launch(name)

    def pause(self, name: str) -> Fault | None:
        if self._is_used(f"broker {name}"):
            return None
        self.cluster.pause(name)
        return Fault("pause", name, frozenset({f"broker {name}"}), lambda: self.cluster.go_on(name))

    def stop(self, name: str) -> Fault | None:
        """A clean stop; it hands over."""
        if self._is_used(f"broker {name}"):
            return None
        self.cluster.brokers[name].terminate()

        def start() -> None:
            broker = self.cluster.brokers[name]
            broker.process.wait(STOP_SECONDS_MAX)
            broker.kill()  # which closes what is open still
            self._launch(name)

        return Fault("stop", name, frozenset({f"broker {name}"}), start)

    def fill_disk(self, name: str) -> Fault | None:
        if self._is_used(f"disk {name}"):
            return None
        ballast = self.cluster.path / name / BALLAST
        _fill(str(ballast))

        def heal() -> None:
            ballast.unlink()
            self.healed_disks[name] = time.time()

        return Fault("full disk", name, frozenset({f"disk {name}"}), heal)

    # --- the network ---

    def cut(self, name: str, other: str) -> Fault:
        found = self.cluster.host(name).cut_from(self.cluster.host(other))
        return Fault("cut", f"{name} {other}", frozenset(), found.heal)

    def cut_one_way(self, name: str, other: str) -> Fault:
        found = self.cluster.host(name).cut_to(self.cluster.host(other))
        return Fault("one-way cut", f"from {name} to {other}", frozenset(), found.heal)

    def isolate(self, name: str) -> Fault:
        cluster = self.cluster
        found = cluster.host(name).cut_from(*map(cluster.host, cluster.others(name)))
        return Fault("isolated host", name, frozenset(), found.heal)

    def cut_from_etcd(self, name: str) -> Fault:
        """Its broker reaches no member of etcd; its own member reaches the others."""
        found = self.cluster.host(name).cut_from_port(ETCD)
        return Fault("cut from etcd", name, frozenset(), found.heal)

    # --- etcd ---

    def kill_etcd(self, *names: str) -> Fault | None:
        parts = frozenset(f"etcd {name}" for name in names)
        if self._is_used(*parts):
            return None
        for name in names:
            self.cluster.etcds[name].kill()

        def heal() -> None:
            for name in names:
                self.cluster.etcds[name].spawn()

        return Fault("killed etcd", " ".join(names), parts, heal)

    def pause_etcd(self, *names: str) -> Fault | None:
        parts = frozenset(f"etcd {name}" for name in names)
        if self._is_used(*parts):
            return None
        for name in names:
            self.cluster.etcds[name].pause()

        def heal() -> None:
            for name in names:
                self.cluster.etcds[name].go_on()

        return Fault("paused etcd", " ".join(names), parts, heal)

    def kill_host(self, name: str) -> Fault | None:
        """A broker and a member of etcd die together."""
        if self._is_used(f"broker {name}", f"etcd {name}"):
            return None
        killed = self.kill(name), self.kill_etcd(name)

        def heal() -> None:
            for fault in killed:
                assert fault is not None
                fault.heal()

        return Fault("killed host", name, frozenset({f"broker {name}", f"etcd {name}"}), heal)


FAULTS: dict[str, tuple[int, Callable[[Nemesis, Sequence[str]], Fault | None]]] = {
    "kill": (5, lambda nemesis, names: nemesis.kill(names[0])),
    "kill and start": (3, lambda nemesis, names: nemesis.kill_and_start(names[0])),
    "kill two": (1, lambda nemesis, names: nemesis.kill(*names[:2])),
    "kill all": (1, lambda nemesis, names: nemesis.kill_and_start(*names)),
    "kill host": (2, lambda nemesis, names: nemesis.kill_host(names[0])),
    "pause": (5, lambda nemesis, names: nemesis.pause(names[0])),
    "stop": (3, lambda nemesis, names: nemesis.stop(names[0])),
    "cut": (3, lambda nemesis, names: nemesis.cut(*names[:2])),
    "one-way cut": (4, lambda nemesis, names: nemesis.cut_one_way(*names[:2])),
    "isolate": (3, lambda nemesis, names: nemesis.isolate(names[0])),
    "cut from etcd": (2, lambda nemesis, names: nemesis.cut_from_etcd(names[0])),
    "kill etcd": (2, lambda nemesis, names: nemesis.kill_etcd(names[0])),
    "pause etcd": (2, lambda nemesis, names: nemesis.pause_etcd(names[0])),
    "kill two of etcd": (1, lambda nemesis, names: nemesis.kill_etcd(*names[:2])),
    "pause all of etcd": (1, lambda nemesis, names: nemesis.pause_etcd(*names)),
    "fill disk": (3, lambda nemesis, names: nemesis.fill_disk(names[0])),
}
"""Each kind of fault: how often it is made, and how, by the names of the hosts in random order."""


def _fill(path: str) -> None:
    """Write a file until its disk has no room for anything more."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    chunk = bytes(1 << 20)
    try:
        while chunk:
            try:
                os.write(descriptor, chunk)
            except OSError:
                chunk = chunk[: len(chunk) // 2]
    finally:
        os.close(descriptor)


def _wait(seconds: float) -> None:
    """Faults take time; nothing can be waited for."""
    time.sleep(seconds)


def _nothing() -> None:
    """It has healed by itself."""
