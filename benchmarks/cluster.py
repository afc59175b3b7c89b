"""Replicated queues, side by side: three of our brokers with an etcd, and three RabbitMQs with quorum queues.

All nodes are on this machine. Only one of the two clusters runs at a time; they take turns, and a figure is
the median of its rounds. All queues are quorum queues with three members, all messages are persistent, and
every client is connected to the node that leads its queue.

    confirmed/s           `warren perf throughput` with confirms, with and without consumers; 50 queues are
                          shared out among the three nodes, and so are their publishers
    confirm p50, p99      one publisher sends 1,000 messages of 256 bytes a second, steadily
    without service       Clients publish one message after the other, at every node that takes them.
                          Meanwhile something happens to the leader: its process is killed (kill), paused
                          (pause), cut off from the network (cut) or told to stop (stop). The figure is the
                          longest time between two confirms. For a cut, nodes are in network namespaces,
                          which takes root.

RabbitMQ takes part if Debian's package rabbitmq-server is installed; ours needs etcd-server.

    python -m benchmarks.cluster                     all of it: about six minutes on a quiet machine
    python -m benchmarks.cluster --only 16B,1KB --clusters WarrenMQ --rounds 1
    python -m benchmarks.cluster --only kill,pause,cut,stop --failures 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster_hosts import LOOPBACK, Host, can_make_hosts, hosts
from benchmarks.cluster_nodes import CLUSTERS, Cluster, OurCluster, RabbitMQCluster
from benchmarks.cluster_service import FAILURES, declare, longest_gap, time_confirms
from benchmarks.compare import EXIT_INTERRUPTED, RABBITMQ, WARREN, CompareError, names_of

NODES = 3
RUN_SECONDS_SPARE = 60
WARM_UP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """Publishers with confirms, and perhaps as many consumers."""

    size: int
    window: int = 1000  # of unconfirmed messages, for each publisher
    queues: int = 1
    is_consumed: bool = True

    def words(self, prefix: str, queues: int) -> list[str]:
        """The arguments of `warren perf` for some of the queues, whose names begin so."""
        given = {
            "--size": self.size,
            "--confirm": self.window,
            "--publishers": queues,
            "--consumers": queues if self.is_consumed else 0,
            "--queues": queues,
            "--queue": prefix,
        }
        return ["throughput", "--persistent", *(str(word) for pair in given.items() for word in pair)]


LOADS = {
    "16B": Load(16),
    "1KB": Load(1024),
    "50-queues-256B": Load(256, window=200, queues=50),
    "16B-publish-only": Load(16, is_consumed=False),
    "1KB-publish-only": Load(1024, is_consumed=False),
    "50-queues-256B-publish-only": Load(256, window=200, queues=50, is_consumed=False),
}
CONFIRMS = "confirms-at-1000/s"
NAMES = [*LOADS, CONFIRMS, *FAILURES]
UNITS = {"confirmed/s": "{:,.0f}", "ms": "{:,.2f}", "s": "{:.2f}"}


def names_of_queues(prefix: str, count: int) -> list[str]:
    """As `warren perf` has them."""
    return [prefix] if count == 1 else [f"{prefix}-{number + 1}" for number in range(count)]


def confirmed_per_s(cluster: Cluster, name: str, seconds: float) -> float:
    """What all nodes confirm together. A single queue is at the first node."""
    load = LOADS[name]
    used = cluster.nodes[: min(load.queues, NODES)]
    shares = [len(range(number, load.queues, len(used))) for number in range(len(used))]
    running = []
    for node, (number, share) in zip(used, enumerate(shares), strict=True):
        prefix = f"{name}-{number}"
        for queue in names_of_queues(prefix, share):
            declare(node.uri, queue)
        words = load.words(prefix, share)
        times = ["--seconds", str(seconds), "--warmup", str(WARM_UP_SECONDS)]
        command = [*WARREN, "perf", *words, *times, "--json", "--uri", node.uri]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    total = 0.0
    for process in running:
        out, errors = process.communicate(timeout=seconds + RUN_SECONDS_SPARE)
        if process.returncode:
            raise CompareError(f"{name} with {cluster.name}: {errors.strip()}")
        total += json.loads(out)["confirm_per_s"]
    return total


class Figures:
    """What was measured: by line, unit and cluster, in the order of rounds."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, cluster: Cluster, line: str, unit: str, value: float) -> None:
        self.all[line, unit][cluster.name].append(value)
        print(
            f"  {cluster.name:<10}{line:<32}{UNITS[unit].format(value)} {unit}", file=sys.stderr, flush=True
        )

    def table(self, clusters: Sequence[str]) -> str:
        lines = [f"{'':<32}{'':<13}" + "".join(f"{name:>12}" for name in clusters)]
        for (line, unit), rounds in self.all.items():
            medians = {name: statistics.median(values) for name, values in rounds.items()}
            cells = "".join(
                f"{UNITS[unit].format(medians[name]) if name in medians else '':>12}" for name in clusters
            )
            lines.append(f"{line:<32}{unit:<13}{cells}" + _ratio(medians, unit))
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, object]]:
        return [
            {
                "line": line,
                "unit": unit,
                "median": {name: statistics.median(values) for name, values in rounds.items()},
                "rounds": rounds,
            }
            for (line, unit), rounds in self.all.items()
        ]


def _ratio(medians: dict[str, float], unit: str) -> str:
    """How many times better ours is."""
    if OurCluster.name not in medians or RabbitMQCluster.name not in medians:
        return ""
    ours, theirs = medians[OurCluster.name], medians[RabbitMQCluster.name]
    better, worse = (ours, theirs) if unit == "confirmed/s" else (theirs, ours)
    return f"{better / worse:>9.1f}x" if worse else ""


def measure(asked: argparse.Namespace, work: Path, places: Sequence[Host], figures: Figures) -> None:
    """Loads are on loopback. What happens to leaders does on hosts of their own, if there are such."""
    loads = [name for name in asked.only if name not in FAILURES]
    failures = [name for name in asked.only if name in FAILURES and (name != "cut" or places[0].cable)]
    runs = [(loads, [Host(LOOPBACK)] * NODES)] * asked.rounds + [(failures, places)] * asked.failures
    for number, (names, hosts_used) in enumerate(runs):
        for kind in asked.clusters if names else ():
            directory = work / f"{kind.name}-{number}"
            directory.mkdir()
            with kind(directory, hosts_used) as cluster:
                _measure_one(cluster, names, asked.seconds, figures)


def _measure_one(cluster: Cluster, names: Sequence[str], seconds: float, figures: Figures) -> None:
    for name in names:
        if name in LOADS:
            figures.add(cluster, name, "confirmed/s", confirmed_per_s(cluster, name, seconds))
        elif name == CONFIRMS:
            p50, p99 = time_confirms(cluster.nodes[0].uri, seconds)
            figures.add(cluster, f"{name}: p50", "ms", p50)
            figures.add(cluster, f"{name}: p99", "ms", p99)
        else:
            figures.add(cluster, f"without service: {name}", "s", longest_gap(cluster, name))


def run(asked: argparse.Namespace) -> None:
    figures = Figures()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        places = [Host(LOOPBACK)] * NODES
        if "cut" in asked.only and can_make_hosts():
            places = stack.enter_context(hosts(NODES))
        measure(asked, work, places, figures)
    print(figures.table([kind.name for kind in asked.clusters]))
    if asked.json:
        asked.json.write_text(json.dumps(figures.as_json(), indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    by_name = {kind.name: kind for kind in CLUSTERS if kind is not RabbitMQCluster or RABBITMQ.exists()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--only", type=names_of(NAMES), default=NAMES, metavar="NAME,…", help=", ".join(NAMES))
    add("--clusters", type=names_of(list(by_name)), default=list(by_name), metavar="NAME,…")
    add("--seconds", type=float, default=2.5, help="how long each load is measured (2.5)")
    add("--rounds", type=int, default=3, help="of the loads (3)")
    add("--failures", type=int, default=1, help="rounds of what happens to leaders (1)")
    add("--json", type=Path, metavar="FILE", help="write all figures there as well")
    asked = parser.parse_args()
    asked.clusters = [by_name[name] for name in asked.clusters]
    return asked


def main() -> int:
    asked = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(asked)
    except CompareError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cluster: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
