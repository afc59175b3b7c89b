"""Terms of this node as the leader of shards: what begins and ends with the roles that the protocol gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from structlog.stdlib import BoundLogger

from warren.broker.node import World
from warren.cluster.effects import Role, RoleChanged
from warren.cluster.safety import ShardSafety
from warren.cluster.shard import Shard
from warren.server.cluster.shard_here import Finish, ShardHere
from warren.storage.led_shard import LedShard
from warren.storage.replica import Replica
from warren.storage.shards import Shards


class ShardOwner(Protocol):
    """Whoever uses the logs of the shards that this node leads."""

    def has_queue(self, number: int) -> bool:
        """Whether there is a queue of this number."""

    def shard_is_led(self, shard: int, led: LedShard) -> None:
        """This node leads a shard. Its logs can be read back; none may be used until the shard is open."""

    def shard_opened(self, shard: int, led: LedShard, safety: ShardSafety) -> None:
        """The logs of a shard can be used. What is appended is safe when `safety` says so."""

    def shard_may_deliver(self, shard: int, *, may: bool) -> None:
        """Whether messages of a shard may be given to consumers has changed."""

    def shard_ended(self, shard: int) -> None:
        """This node does not lead any more: nothing may use the shard's logs from now on. It is told again
        when the shard's files become copies; also if the shard was never open.
        """


class ShardTerms:
    def __init__(
        self,
        here: Mapping[int, ShardHere],
        protocol: Mapping[int, Shard],
        shards: Shards,
        world: World,
        owner: ShardOwner,
        log: BoundLogger,
    ) -> None:
        self.here = here
        self.protocol = protocol  # what it knows of each shard
        self.shards = shards
        self.world = world
        self.owner = owner
        self.log = log
        self.led: dict[int, ShardHere] = {}  # the shards that this node leads, and can append to
        self.on_committed: Callable[[], None] = _nothing  # called when those who waited were told
        self.on_let_go: Callable[[], None] = _nothing  # called when a shard is not led here any more

    def role_changed(self, effect: RoleChanged) -> None:
        here = self.here[effect.shard]
        self.log.info("a shard's role", shard=effect.shard, epoch=effect.epoch, role=effect.role.value)
        if effect.role is Role.OPENING:
            here.then(partial(self._begin_to_lead, here, effect.epoch))
        elif effect.role is Role.OPEN:
            here.then_at_once(partial(self._open, here, effect.epoch))
        elif effect.role is Role.SUSPENDED:
            here.then_at_once(partial(self._suspend, here))
        else:
            self._let_go(here)
            here.then(partial(self._follow_again, here))

    def _begin_to_lead(self, here: ShardHere, epoch: int, finish: Finish) -> None:
        def is_led(led: LedShard) -> None:
            here.led = led
            self.owner.shard_is_led(here.number, led)

        assert here.led is None, "what was led is a copy again"
        self.shards.lead(here.copies, epoch, lambda led: finish(lambda: is_led(led)))

    def _open(self, here: ShardHere, epoch: int) -> None:
        led = here.led
        if led is None or led.epoch != epoch or self.protocol[here.number].has_failed:
            return  # another node leads already, or is about to
        if here.safety is None:
            here.safety = ShardSafety(self._tell_later)
            self.led[here.number] = here
            self.owner.shard_opened(here.number, led, here.safety)
        here.safety.hold(is_held=False)
        self.owner.shard_may_deliver(here.number, may=True)

    def _tell_later(self, callback: Callable[[], None]) -> None:
        """Somebody waits for a term that has ended."""

        def tell() -> None:
            callback()
            self.on_committed()

        self.world.call_soon(tell)

    def _suspend(self, here: ShardHere) -> None:
        leader = self.protocol[here.number].leader
        if here.safety is not None:
            here.safety.hold(is_held=leader is not None and leader.stopped_at is not None)
            self.owner.shard_may_deliver(here.number, may=False)

    def _let_go(self, here: ShardHere) -> None:
        """The term has ended: at once nobody uses its logs any more."""
        safety, here.safety = here.safety, None
        if safety is not None:
            del self.led[here.number]
            here.attempt(safety.end)
            self._tell_end(here)
            self.on_let_go()

    def _tell_end(self, here: ShardHere) -> None:
        here.attempt(partial(self.owner.shard_ended, here.number))

    def _follow_again(self, here: ShardHere, finish: Finish) -> None:
        def is_copy(copies: Replica) -> None:
            here.copies, here.led = copies, None

        self._let_go(here)
        if here.led is None:
            finish(_nothing)
        else:
            self._tell_end(here)
            self.shards.follow_again(here.led, lambda copies: finish(lambda: is_copy(copies)))


def _nothing() -> None:
    """Nobody wants to know, or a step has no last part."""
