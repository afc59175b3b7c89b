"""Federation: which links there are, by policies and upstreams, and that they follow when these change.

A policy in force for an exchange or a queue names upstreams. For each there is one link, kept running by a
`Supervised`. A link that is changed ends before the new one begins, since both use the same queue upstream.
Exchanges, queues, bindings and consumers are watched only while some policy federates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from warren.amqp.errors import PreconditionFailed
from warren.broker.events import (
    BindingCreated,
    BindingDeleted,
    ConsumerCancelled,
    ConsumerStarted,
    ExchangeCreated,
    ExchangeDeleted,
    GlobalParameterCleared,
    GlobalParameterSet,
    ParameterCleared,
    ParameterSet,
    PolicyChanged,
    PolicyDeleted,
    QueueCreated,
    QueueDeleted,
    VhostDeleted,
)
from warren.broker.exchange.exchange import Exchange
from warren.broker.parameters import CLUSTER_NAME
from warren.broker.policy import Policy
from warren.broker.policy_settings import OF_FEDERATION
from warren.broker.queue import Queue
from warren.broker.rules import STREAM, queue_type
from warren.broker.vhost import Vhost
from warren.relay.federation_exchange import FEDERATION, INTERNAL_PURPOSE, ExchangeSide
from warren.relay.federation_link import (
    ERROR,
    EXCHANGE,
    QUEUE,
    RUNNING,
    STARTING,
    FederationLink,
    LinkKey,
    Place,
    Side,
    status_of,
)
from warren.relay.federation_queue import QueueSide
from warren.relay.federation_upstream import (
    UPSTREAM,
    UPSTREAM_SET,
    Upstream,
    check_upstream,
    check_upstream_set,
    upstreams_by,
)
from warren.relay.site import queue_behind, queue_named, why_elsewhere
from warren.relay.supervisor import State, Supervised
from warren.server.app import Broker
from warren.server.metrics import Metric

LOOK_WORK = 20  # units of work: to see whether an exchange or a queue is federated


@dataclass(slots=True)
class Running:
    """A link, and what keeps it running."""

    link: FederationLink
    supervised: Supervised


class Federation:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.node = broker.node
        self.log = broker.log
        self.links: dict[Place, dict[LinkKey, Running]] = {}
        self.ending: dict[LinkKey, asyncio.Task[None]] = {}  # links that are being stopped
        self.is_stopped = False
        subscribe = self.node.events.subscribe
        self.unsubscribe = [
            subscribe(ParameterSet, self._parameter_changed),
            subscribe(ParameterCleared, self._parameter_changed),
            subscribe(PolicyChanged, self._policy_changed),
            subscribe(PolicyDeleted, self._policy_changed),
            subscribe(VhostDeleted, self._vhost_deleted),
            subscribe(GlobalParameterSet, self._global_parameter_changed),
            subscribe(GlobalParameterCleared, self._global_parameter_changed),
        ]
        self.unwatch: list[Callable[[], None]] = []  # ends what is subscribed while some policy federates
        broker.metrics.add(
            Metric(
                name="warren_federation_links",
                text="Federation links by their state",
                read=self._count_by_status,
                label="status",
            )
        )
        self.node.parameters.register(UPSTREAM, check_upstream)
        self.node.parameters.register(UPSTREAM_SET, check_upstream_set)

    def start(self) -> None:
        for name in list(self.node.vhosts):
            self._look_through(name)

    async def stop(self) -> None:
        """End all links. What they have made upstream stays, and gathers messages until we are back."""
        self.is_stopped = True
        for unsubscribe in (*self.unsubscribe, *self.unwatch):
            unsubscribe()
        for running in self.all():
            self._end(running, tidy=False)
        await asyncio.gather(*self.ending.values(), return_exceptions=True)

    def all(self) -> list[Running]:
        return [running for links in self.links.values() for running in links.values()]

    def _count_by_status(self) -> dict[str, int]:
        counts = dict.fromkeys((STARTING, RUNNING, ERROR), 0)
        for running in self.all():
            if running.supervised.is_here:
                counts[status_of(running.supervised.status.state)] += 1
        return counts

    # --- what changes ---

    def _parameter_changed(self, event: ParameterSet | ParameterCleared) -> None:
        if event.component in {UPSTREAM, UPSTREAM_SET}:
            self._look_through(event.vhost)

    def _policy_changed(self, event: PolicyChanged | PolicyDeleted) -> None:
        if not event.operator:
            self._look_through(event.vhost)

    def _vhost_deleted(self, event: VhostDeleted) -> None:
        for place in [place for place in self.links if place.vhost == event.vhost]:
            self._look_at(place)

    def _global_parameter_changed(self, event: GlobalParameterSet | GlobalParameterCleared) -> None:
        """Names of queues upstream have the cluster's name in them."""
        if event.parameter == CLUSTER_NAME:
            for running in self.all():
                self._end(running, tidy=running.link.upstream.is_tidy)

    def _watch(self) -> None:
        """Watch exchanges, queues, bindings and consumers if some policy federates."""
        is_needed = any(federates(vhost) for vhost in self.node.vhosts.values())
        if not is_needed:
            for unsubscribe in self.unwatch:
                unsubscribe()
            self.unwatch = []
        elif not self.unwatch:
            subscribe = self.node.events.subscribe
            self.unwatch = [
                subscribe(ExchangeCreated, self._exchange_changed),
                subscribe(ExchangeDeleted, self._exchange_changed),
                subscribe(QueueCreated, self._queue_changed),
                subscribe(QueueDeleted, self._queue_changed),
                subscribe(BindingCreated, self._binding_changed),
                subscribe(BindingDeleted, self._binding_changed),
                subscribe(ConsumerStarted, self._consumer_changed),
                subscribe(ConsumerCancelled, self._consumer_changed),
            ]

    def _exchange_changed(self, event: ExchangeCreated | ExchangeDeleted) -> None:
        self._look_at(Place(event.vhost, EXCHANGE, event.exchange))

    def _queue_changed(self, event: QueueCreated | QueueDeleted) -> None:
        self._look_at(Place(event.vhost, QUEUE, event.queue))

    def _binding_changed(self, event: BindingCreated | BindingDeleted) -> None:
        self._tell(Place(event.vhost, EXCHANGE, event.source))

    def _consumer_changed(self, event: ConsumerStarted | ConsumerCancelled) -> None:
        self._tell(Place(event.vhost, QUEUE, event.queue))

    def _tell(self, place: Place) -> None:
        for running in self.links.get(place, {}).values():
            running.link.side.changed.set()

    # --- which links there are ---

    def _look_through(self, vhost: str) -> None:
        """Look at all of a vhost, over several turns if it has much in it."""
        self._watch()
        self.node.turns.spread(self._looking(vhost))

    def _looking(self, name: str) -> Iterator[int]:
        places = [place for place in self.links if place.vhost == name]
        vhost = self.node.vhosts.get(name)
        if vhost is not None and federates(vhost):
            places += [Place(name, EXCHANGE, exchange) for exchange in vhost.exchanges]
            places += [Place(name, QUEUE, queue) for queue in vhost.queues]
        for place in places:
            self._look_at(place)
            yield LOOK_WORK

    def _look_at(self, place: Place) -> None:
        """Have those links for an exchange or a queue that there should be."""
        if self.is_stopped:
            return
        wanted = {LinkKey(place, one.name, there(place, one)): one for one in self._upstreams(place)}
        for key, running in list(self.links.get(place, {}).items()):
            upstream = wanted.get(key)
            if upstream != running.link.upstream:
                self._end(running, tidy=is_left(running.link.upstream, upstream))
        for key, upstream in wanted.items():
            if key not in self.links.get(place, {}) and key not in self.ending:
                self._begin(key, upstream)

    def _upstreams(self, place: Place) -> list[Upstream]:
        found = self._federated(place)
        vhost = self.node.vhosts.get(place.vhost)
        if found is None or vhost is None:
            return []
        policy = policy_of(vhost, found)
        if policy is None:
            return []
        try:
            return list(upstreams_by(policy.definition, place.vhost, self.node.parameters))
        except PreconditionFailed as error:  # of an older data directory, when nobody checked it
            self.log.warning("upstream makes no sense", vhost=place.vhost, reason=error.text)
            return []

    def _federated(self, place: Place) -> Exchange | Queue | None:
        """The exchange or queue, if it can be federated at all."""
        vhost = self.node.vhosts.get(place.vhost)
        if vhost is None:
            return None
        if place.kind == EXCHANGE:
            exchange = vhost.exchanges.get(place.name)
            return None if exchange is None or exchange.internal or not exchange.name else exchange
        queue = vhost.queues.get(place.name)
        return None if queue is None or not can_be_federated(queue) else queue

    def _begin(self, key: LinkKey, upstream: Upstream) -> None:
        link = FederationLink(self.broker, key, upstream, self._side(key.place, upstream))
        find = queue_named if key.place.kind == QUEUE else queue_behind
        supervised = Supervised(
            link,
            self.node.world.time_ms,
            self.node.world.report,
            why_elsewhere=partial(
                why_elsewhere, self.broker, partial(find, self.broker, key.place.vhost, key.place.name)
            ),
        )
        supervised.on_change = lambda one: self._changed(key, one)
        self.links.setdefault(key.place, {})[key] = Running(link, supervised)

    def _side(self, place: Place, upstream: Upstream) -> Side:
        found = self._federated(place)
        assert found is not None, "links are made for what can be federated"
        if isinstance(found, Queue):
            return QueueSide(self.node.vhosts[place.vhost].queues, found, upstream)
        return ExchangeSide(self.node.cluster_name, place.vhost, found, upstream)

    def _end(self, running: Running, *, tidy: bool) -> None:
        """End a link. If it is wanted still, another one begins afterwards. In a cluster, the node that runs
        it tidies up.
        """
        tidy = tidy and running.supervised.is_here
        key = running.link.key
        del self.links[key.place][key]
        if not self.links[key.place]:
            del self.links[key.place]
        running.supervised.on_change = None
        running.link.stop_taking()
        ending = self.ending[key] = asyncio.create_task(self._ending(running, tidy=tidy))
        ending.add_done_callback(lambda _: self._has_ended(key))

    async def _ending(self, running: Running, *, tidy: bool) -> None:
        await running.supervised.stop()
        if tidy:
            try:
                await running.link.clean_up()
            except Exception as error:  # noqa: BLE001 - whatever happens, the next link may begin
                self.node.world.report(error)

    def _has_ended(self, key: LinkKey) -> None:
        self.ending.pop(key, None)
        self._look_at(key.place)

    def restart(self, link_id: str, vhost: str) -> None:
        """KeyError if there is no such link on this node."""
        for running in self.all():
            key = running.link.key
            if (key.id, key.place.vhost) == (link_id, vhost) and running.supervised.is_here:
                self._end(running, tidy=False)
                return
        raise KeyError(link_id)

    def _changed(self, key: LinkKey, supervised: Supervised) -> None:
        status = supervised.status
        told = {"vhost": key.place.vhost, key.place.kind: key.place.name, "upstream": key.upstream}
        if status.state is State.TERMINATED:
            self.log.warning("federation link ended", **told, reason=status.reason)
        elif status.state is State.RUNNING:
            self.log.info("federation link runs", **told)


def federates(vhost: Vhost) -> bool:
    """Whether any policy of a vhost names upstreams."""
    return any(not OF_FEDERATION.keys().isdisjoint(p.definition) for p in vhost.policies.policies.values())


def can_be_federated(queue: Queue) -> bool:
    """Not a stream, nor a queue that goes with its connection, nor one that federation has made."""
    is_own = queue.arguments.get(INTERNAL_PURPOSE) == FEDERATION
    return queue.owner is None and not is_own and queue_type(queue.arguments) != STREAM


def policy_of(vhost: Vhost, found: Exchange | Queue) -> Policy | None:
    """The policy in force. It may be so new that the exchange or queue itself does not know of it yet."""
    for policy in vhost.policies.policies.values():
        is_for = policy.is_for_queue(found) if isinstance(found, Queue) else policy.is_for_exchange(found)
        if is_for:
            return policy
    return None


def there(place: Place, upstream: Upstream) -> str:
    """The name of the exchange or queue upstream."""
    return (upstream.exchange if place.kind == EXCHANGE else upstream.queue) or place.name


def is_left(before: Upstream, after: Upstream | None) -> bool:
    """Whether the queue that a link has made upstream has to go. A new link that works with the same queue
    goes on with what is in it.
    """
    if after is None:
        return before.is_tidy
    kept = replace(
        after,
        consumer_tag=before.consumer_tag,
        prefetch_count=before.prefetch_count,
        reconnect_seconds=before.reconnect_seconds,
        max_hops=before.max_hops,
        trust_user_id=before.trust_user_id,
        ack_mode=before.ack_mode,
        is_tidy=before.is_tidy,
        bind_nowait=before.bind_nowait,
        channel_use_mode=before.channel_use_mode,
    )
    return kept != before
