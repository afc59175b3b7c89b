"""Runs of the simulator with one rule switched off: each has to be noticed."""

from __future__ import annotations

from dataclasses import fields, replace

from tests.cluster.simulation.disk import DiskRules, Violation
from tests.cluster.simulation.world import STEPS, run_seed
from warren.cluster.settings import Rules

PROTOCOL_RULES = tuple(field.name for field in fields(Rules))
DISK_RULES = tuple(field.name for field in fields(DiskRules))


def without(rule: str) -> tuple[Rules, DiskRules]:
    """All rules but one."""
    if rule in PROTOCOL_RULES:
        return replace(Rules(), **{rule: False}), DiskRules()
    return Rules(), replace(DiskRules(), **{rule: False})


def first_caught(rule: str, seeds: range, steps: int = STEPS) -> tuple[int, str] | None:
    """The first seed whose run notices that this rule is off, and what it notices."""
    rules, disk_rules = without(rule)
    for seed in seeds:
        try:
            run_seed(seed, rules, disk_rules, steps)
        except Violation as violation:
            return seed, str(violation)
    return None
