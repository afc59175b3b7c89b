"""Policies: settings for all queues and exchanges of a vhost whose names match a pattern.

If several policies match, only the one with the highest priority is in force; among equals, the one whose
name comes first. An operator policy may be in force beside it, found in the same way, for queues only: it
can lower limits that arguments and policies set, and comes before the policy in all else. `rules.py` makes a
queue's rules from its arguments and both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table, Value
from warren.broker.exchange.exchange import Exchange
from warren.broker.pattern import pattern_of
from warren.broker.policy_settings import check_definition
from warren.broker.queue import Queue
from warren.broker.rules import ALTERNATE_EXCHANGE, RULES, Rule, queue_type, rules_of, whole_number

ALL, QUEUES, EXCHANGES = "all", "queues", "exchanges"
QUEUES_OF_TYPE = {"classic_queues": "classic", "quorum_queues": "quorum", "streams": "stream"}
PRIORITY_MAX = 2**63 - 1
APPLY_TO = (ALL, QUEUES, *QUEUES_OF_TYPE, EXCHANGES)


class QueueOrDeclaration(Protocol):
    """What policies look at."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> Table: ...


@dataclass(frozen=True, kw_only=True)
class Policy:
    name: str
    pattern: str  # a regular expression, for the names of queues and exchanges
    definition: Table = field(hash=False)  # the settings
    priority: int = 0
    apply_to: str = ALL  # one of APPLY_TO
    operator: bool = False  # whether this is an operator policy

    def check(self) -> None:
        """406 if the policy makes no sense."""
        for what, value in (("name", self.name), ("pattern", self.pattern)):
            if not isinstance(value, str):
                raise PreconditionFailed(f"{what}: expected a string, not {value!r}")
        try:
            pattern_of(self.pattern)
        except ValueError as error:
            raise PreconditionFailed(f"pattern: {error}") from None
        try:
            whole_number(-PRIORITY_MAX, PRIORITY_MAX)(self.priority)
        except ValueError as error:
            raise PreconditionFailed(f"priority: {error}") from None
        possible = [kind for kind in APPLY_TO if not (self.operator and kind == EXCHANGES)]
        if self.apply_to not in possible:
            raise PreconditionFailed(f"apply-to: {self.apply_to!r} is none of {', '.join(possible)}")
        check_definition(self.definition, operator=self.operator)

    def is_for_queue(self, queue: QueueOrDeclaration) -> bool:
        if self.apply_to not in {ALL, QUEUES}:
            wanted = QUEUES_OF_TYPE.get(self.apply_to)
            if wanted is None or wanted != queue_type(queue.arguments):
                return False
        return self._matches(queue.name)

    def is_for_exchange(self, exchange: Exchange) -> bool:
        """Whether the policy matches an exchange. None ever matches the default exchange."""
        if self.operator or self.apply_to not in {ALL, EXCHANGES} or not exchange.name:
            return False
        return self._matches(exchange.name)

    def _matches(self, name: str) -> bool:
        return pattern_of(self.pattern).is_in(name)


class InForce(NamedTuple):
    """The policies in force for a queue."""

    policy: Policy | None = None
    operator_policy: Policy | None = None

    @property
    def definitions(self) -> tuple[Table | None, Table | None]:
        return (
            None if self.policy is None else self.policy.definition,
            None if self.operator_policy is None else self.operator_policy.definition,
        )

    @property
    def settings(self) -> Table:
        """The settings of both. Of a limit that both set, the lower value."""
        policy, operator_policy = self.definitions
        if not policy or not operator_policy:
            return dict(policy or operator_policy or {})
        merged = policy | operator_policy
        for rule in RULES:
            if rule.limit and rule.name in policy and rule.name in operator_policy:
                merged[rule.name] = min(
                    policy[rule.name], operator_policy[rule.name], key=lambda value: _size(rule, value)
                )
        return merged


def _size(rule: Rule, value: Value) -> float:
    """A limit's value, to compare; infinite if it is no limit."""
    read = rule.value(value)
    return math.inf if read is None else float(read)


NOTHING = InForce()


class Policies:
    """The policies of one vhost. Of two that match, the one that comes first in the dictionary wins."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}
        self.of_queues: dict[str, InForce] = {}  # by the names of queues that any policy is in force for

    def find(self, name: str, *, operator: bool) -> Policy | None:
        return self._kind(operator=operator).get(name)

    def put(self, policy: Policy) -> None:
        kind = self._kind(operator=policy.operator)
        kind[policy.name] = policy
        ordered = sorted(kind.values(), key=lambda policy: (-policy.priority, policy.name))
        kind.clear()
        kind.update({policy.name: policy for policy in ordered})

    def remove(self, policy: Policy) -> None:
        del self._kind(operator=policy.operator)[policy.name]

    def _kind(self, *, operator: bool) -> dict[str, Policy]:
        return self.operator_policies if operator else self.policies

    # --- queues ---

    def in_force(self, queue: Queue) -> InForce:
        return self.of_queues.get(queue.name, NOTHING)

    def names_of(self, queue: Queue) -> tuple[str | None, str | None]:
        """The names of the policy and of the operator policy that are in force for a queue."""
        policy, operator_policy = self.in_force(queue)
        return (
            None if policy is None else policy.name,
            None if operator_policy is None else operator_policy.name,
        )

    def apply_to_queue(self, queue: Queue) -> None:
        """Find the policies for a queue, which may be new. The queue gets new rules only if they differ."""
        found = self._find(queue)
        if found is NOTHING and self.of_queues.pop(queue.name, None) is None:
            return  # no policy now or before: the queue has the rules of its arguments
        if found is not NOTHING:
            self.of_queues[queue.name] = found
        rules = rules_of(queue.arguments, *found.definitions)
        if rules != queue.rules:
            queue.set_rules(rules)

    def settings_for(self, declared: QueueOrDeclaration) -> Table:
        """The settings that would hold for a queue that is about to be made."""
        return self._find(declared).settings

    def _find(self, queue: QueueOrDeclaration) -> InForce:
        if not self.policies and not self.operator_policies:
            return NOTHING
        policy = _first(policy for policy in self.policies.values() if policy.is_for_queue(queue))
        operators = _first(policy for policy in self.operator_policies.values() if policy.is_for_queue(queue))
        return NOTHING if policy is None and operators is None else InForce(policy, operators)

    def forget(self, queue: Queue) -> None:
        """The queue is deleted."""
        self.of_queues.pop(queue.name, None)

    # --- exchanges ---

    def apply_to_exchange(self, exchange: Exchange) -> None:
        found = _first(policy for policy in self.policies.values() if policy.is_for_exchange(exchange))
        exchange.policy = None if found is None else found.name
        alternate = None if found is None else found.definition.get(ALTERNATE_EXCHANGE)
        exchange.policy_alternate = alternate if isinstance(alternate, str) else None


def _first(policies: Iterable[Policy]) -> Policy | None:
    return next(iter(policies), None)
