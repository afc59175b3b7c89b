"""What a run goes through without etcd: shards that have their leader and all members go on.

Some nodes pause, restart, are cut off or drained meanwhile, or should lead less. When all of them are there
again, each shard whose leader's process has lived all the time must confirm, though etcd is still away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.cluster.simulation.disk import Violation
from tests.cluster.simulation.node import Node

if TYPE_CHECKING:
    from tests.cluster.simulation.world import World

TROUBLES = 3
TROUBLE_SECONDS = 3.5  # longer than the grace
CALM_SECONDS = 8.0  # until all goes on again; longer than a leader tries to hand over
CONFIRM_SECONDS = 2.0


def endure(world: World) -> None:
    """All was healed just before."""
    lives = {node.place: node.life for node in world.nodes}
    world.chance.choice(AWAY)(world)
    for _ in range(TROUBLES):
        world.chance.choice(KINDS)(world, world.chance.choice(world.nodes))
        _pass(world, TROUBLE_SECONDS)
        _repair(world)
    _pass(world, CALM_SECONDS)
    awaited = {}
    for shard in range(world.shards):
        leader = world.leader_disk(world.etcd.records[shard].record)
        if leader is not None and leader.life == lives[leader.place]:
            here = leader.participant.shards[shard]
            if not leader.publish(shard, world.logs[shard][0]):
                raise Violation(f"without etcd, shard {shard} is {here.role} at {leader.store}")
            assert here.leader is not None
            awaited[shard] = here.leader
    _pass(world, CONFIRM_SECONDS)
    for shard, term in awaited.items():
        if term.told < term.index:
            raise Violation(f"without etcd, shard {shard} confirms nothing")


def _hang(world: World) -> None:
    world.etcd.is_up = False


def _refuse(world: World) -> None:
    world.etcd.refuses.update(range(len(world.nodes)))


def _refuse_changes(world: World) -> None:
    world.etcd.is_read_only = True


def _pass(world: World, seconds: float) -> None:
    end = world.time + seconds
    while world.time < end:
        world.settle()


def _repair(world: World) -> None:
    world.network.cuts.clear()
    for node in world.nodes:
        node.participant.undrain()
        node.participant.prefer({})


def _pause(world: World, node: Node) -> None:
    node.paused_until = world.time + TROUBLE_SECONDS - 0.5


def _restart(_: World, node: Node) -> None:
    node.crash()
    node.boot()


def _cut_off(world: World, node: Node) -> None:
    for other in world.nodes:
        if other is not node:
            world.network.cuts.update(((node.place, other.place), (other.place, node.place)))


def _drain(_: World, node: Node) -> None:
    node.participant.drain(node.now())
    node.carry_out()


def _drain_all(world: World, _: Node) -> None:
    for node in world.nodes:
        _drain(world, node)


def _move(world: World, node: Node) -> None:
    """An operator moves what can be moved, and another store should lead the rest."""
    for shard in range(world.shards):
        for other in world.nodes:
            other.participant.shards[shard].move(node.store, other.now())
            other.participant.prefer({shard: node.store})
            other.carry_out()


AWAY: list[Callable[[World], None]] = [_hang, _refuse, _refuse_changes]
KINDS: list[Callable[[World, Node], None]] = [_pause, _restart, _cut_off, _drain, _drain_all, _move]
