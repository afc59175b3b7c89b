"""Run seeds of the simulator by hand: many, or one to see what it finds, or with a rule switched off.

python -m tests.cluster.simulation --seeds 0:100000 --processes 2
python -m tests.cluster.simulation --seeds 471
python -m tests.cluster.simulation --seeds 0:2000 --without fence
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import Pool
from time import monotonic
from typing import NamedTuple

from tests.cluster.simulation.disk import DiskRules, Violation
from tests.cluster.simulation.mutations import DISK_RULES, PROTOCOL_RULES, without
from tests.cluster.simulation.world import STEPS, run_seed
from warren.cluster.settings import Rules

GARBAGE_MAX = 50_000  # objects: looking for garbage more often takes a tenth of the time
CHUNK = 50  # seeds that a process takes at once
SAY_EVERY_SECONDS = 60.0
SHOWN_MAX = 10


class Result(NamedTuple):
    seed: int
    confirmed: int
    leaderships: int
    violation: str | None


def run_one(seed: int, *, rules: Rules, disk_rules: DiskRules, steps: int) -> Result:
    try:
        world = run_seed(seed, rules, disk_rules, steps)
    except Violation as violation:
        return Result(seed, 0, 0, str(violation))
    return Result(seed, world.checks.count, world.leaderships, None)


class Figures:
    """What all runs have come to."""

    def __init__(self) -> None:
        self.begun = monotonic()
        self.said = self.begun
        self.runs = self.confirmed = self.leaderships = 0
        self.found: Counter[str] = Counter()  # kinds of violations

    def note(self, result: Result) -> None:
        self.runs += 1
        self.confirmed += result.confirmed
        self.leaderships += result.leaderships
        if result.violation is not None:
            self.found[result.violation.split(":")[0]] += 1
            if self.found.total() <= SHOWN_MAX:
                print(f"seed {result.seed}: {result.violation}", flush=True)  # noqa: T201 - a command's output
        if monotonic() - self.said > SAY_EVERY_SECONDS:
            self.said = monotonic()
            print(self, flush=True)  # noqa: T201

    def __str__(self) -> str:
        seconds = monotonic() - self.begun
        return (
            f"{self.runs} runs, {self.confirmed} confirmed, {self.leaderships} leaderships, "
            f"{self.found.total()} violations in {seconds:.0f} s {dict(self.found) or ''}"
        )


def results(seeds: Iterable[int], processes: int, run: partial[Result]) -> Iterator[Result]:
    if processes == 1:
        yield from map(run, seeds)
        return
    with Pool(processes) as pool:
        yield from pool.imap_unordered(run, seeds, CHUNK)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the cluster's protocol under faults.")
    parser.add_argument("--seeds", default="0:2000", help="from:to, or one seed (0:2000)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--without", choices=(*PROTOCOL_RULES, *DISK_RULES), help="switch a rule off")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    rules, disk_rules = without(given.without) if given.without else (Rules(), DiskRules())
    run = partial(run_one, rules=rules, disk_rules=disk_rules, steps=given.steps)
    gc.set_threshold(GARBAGE_MAX)
    figures = Figures()
    for result in results(seeds, given.processes, run):
        figures.note(result)
    print(figures)  # noqa: T201
    return 1 if figures.found else 0


if __name__ == "__main__":
    sys.exit(main())
