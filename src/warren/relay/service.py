"""The service `relays`: runs the shovels and the federation that parameters and the configuration describe.

On which node of a cluster a relay runs is decided in `site`. Each node has all of them, and looks from time
to time which of them it is to run. A static shovel runs on each node whose configuration has it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, cast

from warren.amqp.errors import PreconditionFailed
from warren.broker.commands import ClearParameter
from warren.broker.events import (
    ParameterCleared,
    ParameterSet,
    ShovelFailed,
    ShovelStarted,
    ShovelStopped,
    VhostDeleted,
)
from warren.relay.federation import Federation
from warren.relay.shovel import Shovel
from warren.relay.shovel_definition import COMPONENT, NotSpoken, ShovelDefinition, read_shovel
from warren.relay.site import queue_of_shovel, why_elsewhere
from warren.relay.static_shovels import static_shovels
from warren.relay.supervisor import Relay, State, Supervised, Unfit, always_here
from warren.server.app import Broker
from warren.server.config import Config
from warren.server.config_error import ConfigError
from warren.server.metrics import Metric

DYNAMIC, STATIC = "dynamic", "static"
DELETED, CHANGED, RESTARTED = "it was deleted", "its definition has changed", "it is restarted"
LOOK_SECONDS = 1.0  # between looks where relays are to run
LOOK_WORK = 5  # units of work, for one relay
DONE, BROKER_STOPS = "it has carried all that it was to carry", "the broker stops"


class RelayName(NamedTuple):
    vhost: str
    name: str


class Relays:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.node = broker.node
        self.shovels: dict[RelayName, Supervised] = {}
        self.static: dict[RelayName, ShovelDefinition] = {}  # as the configuration has them
        self.leaving: set[Supervised] = set()  # those that are being stopped
        self.ending: dict[RelayName, asyncio.Task[None]] = {}  # for each name, the task that stops the last
        self.looking: asyncio.Task[None] | None = None  # only in a cluster
        self.carried_by_gone = 0  # messages, by shovels that are no more
        self.unsubscribe = [
            self.node.events.subscribe(ParameterSet, self._parameter_set),
            self.node.events.subscribe(ParameterCleared, self._parameter_cleared),
            self.node.events.subscribe(VhostDeleted, self._vhost_deleted),
        ]
        self.node.parameters.register(COMPONENT, self._check)
        self._add_metrics()
        self.federation = Federation(broker)

    address = ""
    """Relays listen nowhere."""

    async def start(self) -> None:
        self._check_settings(self.broker.config)
        self.broker.settings_checks.append(self._check_settings)
        self.broker.on_reload.append(self._take_static)
        self.broker.descriptors.counters.append(lambda: sum(each.sockets for each in self._running()))
        self._take_static()
        for vhost in self.node.vhosts:
            for component, name in list(self.node.parameters.of_vhost(vhost)):
                if component == COMPONENT:
                    self._begin_dynamic(RelayName(vhost, name))
        self.federation.start()
        if self.broker.cluster is not None:
            self.looking = asyncio.create_task(self._keep_looking())

    async def stop(self) -> None:
        for unsubscribe in self.unsubscribe:
            unsubscribe()
        if self._take_static in self.broker.on_reload:  # the start has not failed
            self.broker.on_reload.remove(self._take_static)
            self.broker.settings_checks.remove(self._check_settings)
        if self.looking is not None:
            self.looking.cancel()
        for name in list(self.shovels):
            self._end(name, BROKER_STOPS)
        await asyncio.gather(self.federation.stop(), *self.ending.values(), return_exceptions=True)

    # --- where they run ---

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.node.turns.spread(self._look())

    def _look(self) -> Iterator[int]:
        links = (running.supervised for running in self.federation.all())
        for supervised in [*self.shovels.values(), *links]:
            supervised.look()
            yield LOOK_WORK

    # --- figures ---

    def _add_metrics(self) -> None:
        for kind in (DYNAMIC, STATIC):
            self.broker.metrics.add(
                Metric(
                    name=f"rabbitmq_shovel_{kind}",
                    text=f"Number of {kind} shovels",
                    read=partial(self._by_state, kind),
                    label="status",
                )
            )

    def _by_state(self, kind: str) -> dict[str, int]:
        found = Counter(
            each.status.state for name, each in self.shovels.items() if self.kind_of(name) == kind
        )
        return {state.value: found[state] for state in State if state is not State.ELSEWHERE}

    def kind_of(self, name: RelayName) -> str:
        return STATIC if name in self.static else DYNAMIC

    def _running(self) -> Iterator[Shovel]:
        for supervised in (*self.shovels.values(), *self.leaving):
            if isinstance(supervised.relay, Shovel):
                yield supervised.relay

    @property
    def carried(self) -> int:
        """How many messages all shovels have carried, also those that are gone: it never goes down."""
        return self.carried_by_gone + sum(shovel.carried for shovel in self._running())

    # --- parameters come and go ---

    def _check(self, vhost: str, name: str, value: object) -> None:
        if RelayName(vhost, name) in self.static:
            raise PreconditionFailed(f"shovel '{name}': a static shovel has this name")
        with contextlib.suppress(NotSpoken):  # a file of definitions may have it; its status tells
            read_shovel(name, value)  # type: ignore[arg-type]  # what a parameter can be

    def _parameter_set(self, event: ParameterSet) -> None:
        if event.component == COMPONENT:
            name = RelayName(event.vhost, event.parameter)
            self._end(name, CHANGED)
            self._begin_dynamic(name)

    def _parameter_cleared(self, event: ParameterCleared) -> None:
        if event.component == COMPONENT:
            self._end(RelayName(event.vhost, event.parameter), DELETED)

    def _vhost_deleted(self, event: VhostDeleted) -> None:
        for name in [name for name in self.shovels if name.vhost == event.vhost]:
            self._end(name, "its vhost was deleted")

    # --- the configuration ---

    def _check_settings(self, config: Config) -> None:
        """`ConfigError` if its shovels cannot run here."""
        for vhost, name in static_shovels(config):
            if vhost not in self.node.vhosts and vhost not in config.vhosts:
                raise ConfigError(f"shovels: '{name}': there is no vhost '{vhost}'")
            if (COMPONENT, name) in self.node.parameters.of_vhost(vhost):
                raise ConfigError(f"shovels: '{name}': a parameter of vhost '{vhost}' has this name")

    def _take_static(self) -> None:
        """Run the shovels that the configuration has now. Those that it had before go on."""
        wanted = {RelayName(*key): each for key, each in static_shovels(self.broker.config).items()}
        before, self.static = self.static, wanted
        for name in before:
            if wanted.get(name) != before[name]:
                self._end(name, CHANGED if name in wanted else DELETED)
        for name in wanted:
            if name not in self.shovels:
                self._begin(name)

    # --- beginning and end ---

    def _begin(self, name: RelayName) -> None:
        if name in self.static:
            self._run(name, Shovel(self.broker, *name, self.static[name], kind=STATIC))
        else:
            self._begin_dynamic(name)

    def _begin_dynamic(self, name: RelayName) -> None:
        value = self.node.parameters.find(COMPONENT, *name)
        try:
            definition = read_shovel(name.name, value)
        except PreconditionFailed as error:
            self._run(name, Unfit(error.text))
            return
        why = partial(why_elsewhere, self.broker, queue_of_shovel(self.broker, definition))
        self._run(name, Shovel(self.broker, *name, definition, kind=DYNAMIC), why)

    def _run(self, name: RelayName, relay: Relay, why: Callable[[], str] = always_here) -> None:
        world = self.node.world
        supervised = Supervised(
            relay, world.time_ms, world.report, after=self.ending.get(name), why_elsewhere=why
        )
        supervised.on_change = lambda one: self._changed(name, one)
        self.shovels[name] = supervised

    def _end(self, name: RelayName, reason: str) -> None:
        supervised = self.shovels.pop(name, None)
        if supervised is None:
            return
        supervised.on_change = None
        supervised.relay.stop_taking()
        self.leaving.add(supervised)
        before = self.ending.get(name)
        ending = self.ending[name] = asyncio.create_task(self._stop(supervised, before))
        ending.add_done_callback(lambda ended: self._has_ended(name, ended))
        if not supervised.is_finished:
            self.node.events.emit(ShovelStopped(*name, reason))

    async def _stop(self, supervised: Supervised, before: asyncio.Task[None] | None) -> None:
        """End a shovel. `before` ends the one in whose place this one came."""
        await supervised.stop()
        if before is not None:
            await asyncio.wait({before})
        self.leaving.discard(supervised)
        if isinstance(supervised.relay, Shovel):
            self.carried_by_gone += supervised.relay.carried

    def _has_ended(self, name: RelayName, ended: asyncio.Task[None]) -> None:
        if self.ending.get(name) is ended:
            del self.ending[name]

    def restart(self, name: RelayName) -> None:
        """KeyError if there is none."""
        if name not in self.shovels:
            raise KeyError(name)
        self._end(name, RESTARTED)
        self._begin(name)

    def _changed(self, name: RelayName, supervised: Supervised) -> None:
        status = supervised.status
        if status.state is State.RUNNING:
            self.node.events.emit(ShovelStarted(*name))
        elif supervised.is_finished:
            self.node.events.emit(ShovelStopped(*name, DONE))
            asyncio.get_running_loop().call_soon(self._forget_finished, name)
        elif status.state is State.TERMINATED:
            self.node.events.emit(ShovelFailed(*name, status.reason))

    def _forget_finished(self, name: RelayName) -> None:
        """A shovel that was to be deleted after some messages goes with its parameter."""
        if name in self.shovels and self.shovels[name].is_finished and name not in self.static:
            self.node.change(ClearParameter(vhost=name.vhost, component=COMPONENT, name=name.name))


def relays_of(broker: Broker) -> Relays:
    return cast("Relays", broker.services["relays"])
