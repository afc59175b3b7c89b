"""Random runs of the protocol hold all invariants, and notice every rule that is switched off.

A failure names its seed. Repeat it with `python -m tests.cluster.simulation --seeds SEED`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from tests.cluster.simulation.__main__ import main
from tests.cluster.simulation.disk import DiskRules, Violation
from tests.cluster.simulation.mutations import DISK_RULES, PROTOCOL_RULES, first_caught, without
from tests.cluster.simulation.schedules import DIRECTED
from tests.cluster.simulation.world import run_seed
from warren.cluster.settings import Rules

FEW, MANY = range(40), range(40, 2000)

# Seeds within which chance notices that a rule is off. All other rules have a schedule of their own.
BY_CHANCE = {
    "all_members": 20,
    "own_disk_counts": 20,
    "sync_before_ack": 20,
    "known_shrink": 60,
    "never_below_min": 20,
    "new_epoch_at_restart": 60,
    "only_in_sync_stand": 20,
    "one_session": 60,
    "no_delete_first": 40,
    "all_logs": 100,
    "joiner_has_opening": 100,
    "hold_changes": 60,
    "open_when_in_step": 60,
    "seal": 60,
    "new_identity": 150,
    "committed_only": 20,
    "compare": 20,
}


def run_seeds(seeds: range) -> tuple[int, int]:
    confirmed = leaderships = 0
    for seed in seeds:
        try:
            world = run_seed(seed)
        except Violation as violation:
            pytest.fail(f"{violation}\npython -m tests.cluster.simulation --seeds {seed}")
        confirmed += world.checks.count
        leaderships += world.leaderships
    return confirmed, leaderships


def test_runs_hold_all_invariants() -> None:
    confirmed, leaderships = run_seeds(FEW)
    assert confirmed > 10 * len(FEW)
    assert leaderships > len(FEW)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_many_runs_hold_all_invariants() -> None:
    confirmed, leaderships = run_seeds(MANY)
    assert confirmed > 10 * len(MANY)
    assert leaderships > len(MANY)


def test_a_seed_is_always_the_same_run() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.time == second.time
    assert first.checks.confirmed == second.checks.confirmed
    assert first.etcd.records == second.etcd.records


def test_a_seed_is_the_same_run_in_every_process() -> None:
    told = set()
    for hashes in ("1", "2"):
        command = [sys.executable, "-m", "tests.cluster.simulation", "--seeds", "0:9"]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.add(done.stdout.partition(" in ")[0])
    assert len(told) == 1, told


@pytest.mark.parametrize("rule", sorted(DIRECTED))
def test_a_schedule_holds_with_all_rules(rule: str) -> None:
    DIRECTED[rule](Rules(), DiskRules())


@pytest.mark.parametrize("rule", sorted(DIRECTED))
def test_a_schedule_notices_that_its_rule_is_off(rule: str) -> None:
    with pytest.raises(Violation):
        DIRECTED[rule](*without(rule))


@pytest.mark.parametrize("rule", sorted(BY_CHANCE))
def test_chance_notices_that_a_rule_is_off(rule: str) -> None:
    assert first_caught(rule, range(BY_CHANCE[rule])) is not None


def test_all_rules_hold_unless_they_are_switched_off() -> None:
    assert all(asdict(Rules()).values())


def test_every_rule_is_noticed_in_one_way_or_another() -> None:
    assert {*PROTOCOL_RULES, *DISK_RULES} == {*DIRECTED, *BY_CHANCE}


def test_the_command_tells_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:2"]) == 0
    assert capsys.readouterr().out.startswith("2 runs, ")
    assert main(["--seeds", "0:8", "--without", "all_members"]) == 1
    assert "I2" in capsys.readouterr().out
