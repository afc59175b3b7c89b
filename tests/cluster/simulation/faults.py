"""What breaks in a run, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.cluster.simulation.node import Node
from warren.cluster.known_stores import DRAINING, IN, REMOVED

if TYPE_CHECKING:
    from tests.cluster.simulation.world import World

PAUSE_SECONDS_MAX = 6.0
QUIET_SECONDS_MAX = 2.0
LEADERS_SHARE = 0.4


def _any(world: World) -> Node:
    """A node; leaders have more trouble than others."""
    if world.chance.random() < LEADERS_SHARE:
        leaders = [node for node in world.nodes if node.is_up and node.terms]
        if leaders:
            return world.chance.choice(leaders)
    return world.nodes[int(world.chance.random() * len(world.nodes))]


def crash_or_boot(world: World) -> None:
    node = _any(world)
    if not node.is_up:
        node.boot()
    elif node.participant.node.is_leaving or world.chance.random() < 0.4:
        world.crash(node)
        node.boot()  # by a supervisor, at once
    elif world.is_healed and world.settings.min_in_sync > 1 and world.chance.random() < 0.15:
        world.is_healed = False
        world.crash(node)
        node.wipe()
    else:
        world.crash(node)


def boot(world: World) -> None:
    for node in world.nodes:
        if not node.is_up:
            node.boot()
            return


def cut(world: World) -> None:
    cuts = world.network.cuts
    if cuts and world.chance.random() < 0.7:
        cuts.clear()
        return
    one = _any(world).place
    kind = world.chance.random()
    for other in range(len(world.nodes)):
        if other != one:
            if kind < 0.6 or world.chance.random() < 0.5:
                cuts.add((one, other))
            if kind > 0.3:
                cuts.add((other, one))


def end_links(world: World) -> None:
    """Connections end, and come up again."""
    for a, b in list(world.network.is_connected):
        one, other = world.nodes[a], world.nodes[b]
        if world.network.may_connect(one, other):
            world.network.connect(one, other)
        elif world.network.is_stale(one, other) or world.chance.random() < 0.15:
            world.network.disconnect(one, other)
        elif not one.is_up or not other.is_up:
            world.notice(one, other)
            world.notice(other, one)


def pause(world: World) -> None:
    _any(world).paused_until = world.time + world.chance.random() * PAUSE_SECONDS_MAX


def let_time_pass(world: World) -> None:
    """Nothing happens for a while, anywhere."""
    world.time += world.chance.random() * QUIET_SECONDS_MAX


def fail_disk(world: World) -> None:
    node = _any(world)
    node.is_failing = not node.is_failing
    if node.is_up:
        if node.is_failing:
            node.participant.disk_fails(node.now())
        else:
            node.participant.disk_works()


def fail_step(world: World) -> None:
    """Something fails that was to be done with the files of a shard."""
    node, shard = _any(world), int(world.chance.random() * world.shards)
    if node.is_up and node.paused_until <= world.time:
        node.participant.shards[shard].step_failed(node.now())
        node.carry_out()


def drain(world: World) -> None:
    node = _any(world)
    if node.is_up:
        if node.participant.node.is_draining:
            node.participant.node.is_draining = False
        else:
            node.participant.drain(node.now())
            node.carry_out()


def leave(world: World) -> None:
    """A process is told to end. It does so after a while, or when something else ends it."""
    node = _any(world)
    if not node.is_up:
        return
    if not node.participant.node.is_leaving:
        node.participant.leave(node.now())
    elif node.terms or node.participant.is_waited_for:
        node.participant.say_farewell()
    else:
        world.crash(node)
        return
    node.carry_out()


def stop_etcd(world: World) -> None:
    """It hangs, or it cannot be connected to: by any node, or by one of them. Or it is back."""
    etcd = world.etcd
    if not etcd.is_up or etcd.refuses:
        etcd.is_up = True
        etcd.refuses.clear()
        return
    kind = world.chance.random()
    if kind < 0.4:
        etcd.is_up = False
    elif kind < 0.8:
        etcd.refuses.update(range(len(world.nodes)))
    else:
        etcd.refuses.add(_any(world).place)


def carry_out_late(world: World) -> None:
    """What was given up on is carried out after all."""
    if world.etcd.late:
        world.etcd.swap(world.etcd.late.pop(int(world.chance.random() * len(world.etcd.late))))
        world.check_records()


def operate(world: World) -> None:
    shard = int(world.chance.random() * world.shards)
    world.operate(shard)
    if world.chance.random() < 0.2:
        world.move(shard)


def change_state(world: World) -> None:
    """A node is drained or removed, or takes part again."""
    node = _any(world)
    states = world.registry.states
    if states[node.place] != IN:
        states[node.place] = IN
    elif world.chance.random() < 0.5:
        states[node.place] = DRAINING
    elif len(world.nodes) > world.replicas and REMOVED not in states:
        states[node.place] = REMOVED


def flip_bits(world: World) -> None:
    """Bits flip in a closed segment of a store, if the others have it."""
    node, shard = _any(world), int(world.chance.random() * world.shards)
    record = world.etcd.records[shard].record
    if not world.is_healed or len(record.isr) < 3 or world.chance.random() < 0.5:
        return  # no store has another copy, or not for certain
    if record.leader is not None and record.leader.store == node.store:
        return
    world.damage(node, shard)


def mend(world: World) -> None:
    """Much works again: without this, most of a run would be spent with nothing to break."""
    world.network.cuts.clear()
    world.etcd.is_up = True
    world.etcd.refuses.clear()
    world.registry.states = [IN] * len(world.nodes)
    for node in world.nodes:
        node.is_failing = False
        world.end_leaving(node)
        if not node.is_up:
            node.boot()
        node.participant.disk_works()
        node.participant.node.is_draining = False


FAULTS: list[tuple[float, Callable[[World], None]]] = [  # each up to this share of all faults
    (0.12, crash_or_boot),
    (0.20, boot),
    (0.28, cut),
    (0.55, end_links),
    (0.63, pause),
    (0.71, let_time_pass),
    (0.73, fail_disk),
    (0.74, drain),
    (0.76, leave),
    (0.79, stop_etcd),
    (0.84, carry_out_late),
    (0.88, operate),
    (0.90, change_state),
    (0.91, flip_bits),
    (0.92, fail_step),
    (1.00, mend),
]
