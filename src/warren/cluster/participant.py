"""One node of the cluster: its shards, and its links to other nodes.

Of a pair of nodes are: the link, beacons and their echoes, and the frame that carries all acks of a turn. All
else is of a shard.

The owner calls a method for all that happens, with the time, and then carries out what `take_effects` gives:

    start                    `add_shard` for each shard, with the epoch and the note that the store has kept
    links                    `link_up`, `link_down`, `peer_gone`, `received`
    time                     `tick`, every 50 ms or so, and after the machine has slept
    etcd, about a shard      `learn` (a watch), `record_read`, `cas_answered`
    disk, about a shard      `synced`, `index_synced`, `inventory_taken`, `records_read`, `marks_read`,
                             `go_on`, `apply_failed`, `step_failed`, `damage_found`, `clear`,
                             `gone_confirmed`, `copies_removed`
    the broker, of a shard   `append` at the end of a turn, `takes_publishes`, `may_deliver`
    operators                `drain`, `undrain`; of a shard `move`
    the end of the process   `leave`, then `say_farewell`
    this node                `disk_fails`, `disk_works`, `prefer`

A link is up once the other node has answered a challenge, so that its run lives then. When another link to
the same store comes up, the owner drops what is left of the older one. `peer_gone` means that connecting was
refused by the other machine: no process of that store is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from warren.cluster.config import Leadership, RunId, StoreId
from warren.cluster.effects import Close, Effect, Send
from warren.cluster.messages import Acks, Batch, Beacon, Echo, Farewell, Inventory, Message, Refused
from warren.cluster.settings import Rules, Settings
from warren.cluster.shard import Shard
from warren.cluster.this_node import LedLogs, ThisNode

OF_SHARDS = (Batch, Inventory, Refused)


class Participant:
    def __init__(
        self,
        me: Leadership,
        new_session: Callable[[], int],
        *,
        settings: Settings | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.node = ThisNode(me, settings or Settings(), rules or Rules(), new_session)
        self.shards: dict[int, Shard] = {}
        self.beacon_at = 0.0  # when the next beacons are due
        self.on_error: Callable[[int, Exception], None] = _raise  # told what a tick of a shard failed with

    def add_shard(
        self, number: int, logs: LedLogs, *, epoch: int, now: float, is_whole: bool = True
    ) -> Shard:
        """The node looks after a shard from now on. Its store has kept `epoch` and `is_whole`."""
        shard = Shard(self.node, number, logs, epoch=epoch, is_whole=is_whole, now=now)
        self.shards[number] = shard
        return shard

    def take_effects(self) -> list[Effect]:
        """What has to be done now, in order."""
        node = self.node
        if node.acks:
            for store, acks in node.acks.items():
                if store in node.links:
                    node.effects.append(Send(store, Acks(tuple(acks.values()))))
            node.acks = {}
        effects, node.effects = node.effects, []
        return effects

    # --- links ---

    def link_up(self, store: StoreId, run: RunId, now: float) -> None:
        """A node can be spoken to, over a new link."""
        if store == self.node.me.store:  # a data directory was copied: nobody can say which of the two counts
            self.node.effects.append(Close(store, "it has the store id of this node"))
            return
        if store in self.node.links:
            self.link_down(store, now)
        self.node.links[store] = run
        self.node.refused.discard(store)
        self.node.farewells.discard(store)
        for shard in self.shards.values():
            shard.link_up(store, now)
        self._beacon(store, now)

    def link_down(self, store: StoreId, now: float) -> None:
        """The link to a node has ended."""
        self.node.links.pop(store, None)
        for shard in self.shards.values():
            shard.link_down(store, now)

    def peer_gone(self, store: StoreId, now: float) -> None:
        """No process of this store is there: connecting to it was refused."""
        if store in self.node.links:
            self.link_down(store, now)
        self.node.refused.add(store)
        for shard in self.shards.values():
            shard.peer_gone(store, now)

    # --- messages ---

    def received(self, sender: StoreId, message: Message, now: float) -> None:
        """A message came over the newest link to this store."""
        if isinstance(message, OF_SHARDS):
            self._for_shard(sender, message, now)
        elif isinstance(message, Acks):
            for ack in message.acks:
                shard = self.shards.get(ack.shard)
                if shard is not None:
                    shard.ack(sender, ack, now)
        elif isinstance(message, Beacon):
            self._hear(sender, message, now)
        elif isinstance(message, Echo):
            for number, epoch in message.terms:
                shard = self.shards.get(number)
                if shard is not None:
                    shard.echo(sender, epoch, message.sent_at, now)
        elif isinstance(message, Farewell):
            self._peer_leaves(sender, now)
        else:
            self.node.effects.append(Close(sender, "it said hello twice"))

    def _peer_leaves(self, sender: StoreId, now: float) -> None:
        self.node.farewells.add(sender)
        for shard in self.shards.values():
            shard.peer_leaves(now)

    def _for_shard(self, sender: StoreId, message: Batch | Inventory | Refused, now: float) -> None:
        shard = self.shards.get(message.shard)
        if shard is None:  # this node does not know of it yet
            return
        if isinstance(message, Batch):
            shard.batch(sender, message, now)
        elif isinstance(message, Inventory):
            shard.inventory(sender, message, now)
        else:
            shard.refused(sender, message, now)

    def _hear(self, sender: StoreId, beacon: Beacon, now: float) -> None:
        """Echo the terms of which this node knows no later epoch."""
        echoed = []
        for term in beacon.terms:
            shard = self.shards.get(term[0])
            if shard is not None and shard.hear_term(sender, term[1], now):
                echoed.append(term)
        self.node.effects.append(Send(sender, Echo(beacon.sent_at, tuple(echoed))))

    # --- time ---

    def tick(self, now: float) -> None:
        """Time has passed: called several times in the time between two beacons."""
        for shard in self.shards.values():
            try:
                shard.tick(now)
            except Exception as error:  # noqa: BLE001 - the other shards need their ticks
                self.on_error(shard.number, error)
        if now >= self.beacon_at:
            self.beacon_at = now + self.node.settings.beacon_every
            for store in self.node.links:
                self._beacon(store, now)

    def _beacon(self, store: StoreId, now: float) -> None:
        terms = tuple(
            (shard.number, shard.epoch) for shard in self.shards.values() if _concerns(shard, store)
        )
        if terms:
            self.node.effects.append(Send(store, Beacon(now, terms)))

    # --- this node ---

    def drain(self, now: float) -> None:
        """Hand over all that this node leads, as soon as others can take it, and stand for nothing more."""
        self.node.is_draining = True
        for shard in self.shards.values():
            shard.drain(now)

    def leave(self, now: float) -> None:
        """This process is about to end: hand over, and leave the in-sync sets with that."""
        self.node.is_leaving = True
        self.drain(now)

    def say_farewell(self) -> None:
        """All is handed over: have leaders count this store out before it is gone, so that none has to wait
        for it.
        """
        self.node.effects.extend(Send(store, Farewell()) for store in self.node.links)

    @property
    def is_waited_for(self) -> bool:
        """Whether this store is in sync for another leader, who could do without it."""
        mine, least = self.node.me.store, self.node.settings.min_in_sync
        return any(
            mine in shard.known.record.isr and len(shard.known.record.isr) > least
            for shard in self.shards.values()
            if shard.known is not None and shard.leader is None
        )

    def undrain(self) -> None:
        """Lead again. What is being handed over is handed over still, if somebody takes it."""
        self.node.is_draining = False

    def prefer(self, leaders: Mapping[int, StoreId], *, avoid: Iterable[StoreId] = ()) -> None:
        """Who should lead which shard, as `placement` says, and which stores must not be handed any."""
        self.node.preferred = dict(leaders)
        self.node.avoided = set(avoid)

    def disk_fails(self, now: float) -> None:
        if self.node.disk_failing_since is None:
            self.node.disk_failing_since = now

    def disk_works(self) -> None:
        self.node.disk_failing_since = None


def _concerns(shard: Shard, store: StoreId) -> bool:
    leader = shard.leader
    if leader is None:
        return False
    return store in leader.record.replicas or store in leader.record.joining


def _raise(_shard: int, error: Exception) -> None:
    raise error
