"""The service `relays`: runs the shovels and the federation that parameters and the configuration describe.

Where a relay runs is decided here and nowhere else: on this node, for a broker that is alone.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from warren.broker.commands import ClearParameter
from warren.broker.events import ParameterCleared, ParameterSet, VhostDeleted
from warren.relay.federation import Federation
from warren.relay.shovel import Shovel
from warren.relay.shovel_definition import COMPONENT, read_shovel
from warren.relay.supervisor import State, Supervised
from warren.server.app import Broker

DYNAMIC, STATIC = "dynamic", "static"


class RelayName(NamedTuple):
    vhost: str
    name: str


class Relays:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.node = broker.node
        self.log = broker.log
        self.shovels: dict[RelayName, Supervised] = {}
        self.ending: set[asyncio.Task[None]] = set()  # relays that are being stopped
        self.unsubscribe = [
            self.node.events.subscribe(ParameterSet, self._parameter_set),
            self.node.events.subscribe(ParameterCleared, self._parameter_cleared),
            self.node.events.subscribe(VhostDeleted, self._vhost_deleted),
        ]
        self.node.parameters.register(COMPONENT, self._check)
        self.federation = Federation(broker)

    address = ""
    """Relays listen nowhere."""

    async def start(self) -> None:
        for vhost in self.node.vhosts:
            for component, name in list(self.node.parameters.of_vhost(vhost)):
                if component == COMPONENT:
                    self._begin(RelayName(vhost, name))
        self.federation.start()

    async def stop(self) -> None:
        for unsubscribe in self.unsubscribe:
            unsubscribe()
        for name in list(self.shovels):
            self._end(name)
        await asyncio.gather(self.federation.stop(), *self.ending, return_exceptions=True)

    @staticmethod
    def _check(vhost: str, name: str, value: object) -> None:
        read_shovel(vhost, name, value)  # type: ignore[arg-type]  # what a parameter can be

    # --- parameters come and go ---

    def _parameter_set(self, event: ParameterSet) -> None:
        if event.component == COMPONENT:
            name = RelayName(event.vhost, event.parameter)
            self._end(name)
            self._begin(name)

    def _parameter_cleared(self, event: ParameterCleared) -> None:
        if event.component == COMPONENT:
            self._end(RelayName(event.vhost, event.parameter))

    def _vhost_deleted(self, event: VhostDeleted) -> None:
        for name in [name for name in self.shovels if name.vhost == event.vhost]:
            self._end(name)

    def _begin(self, name: RelayName) -> None:
        value = self.node.parameters.find(COMPONENT, *name)
        definition = read_shovel(*name, value)
        shovel = Shovel(self.broker, *name, definition, kind=DYNAMIC)
        supervised = Supervised(shovel, self.node.world.time_ms, self.node.world.report)
        supervised.on_change = lambda one: self._changed(name, one)
        self.shovels[name] = supervised

    def _end(self, name: RelayName) -> None:
        supervised = self.shovels.pop(name, None)
        if supervised is not None:
            supervised.on_change = None
            ending = asyncio.create_task(supervised.stop())
            self.ending.add(ending)
            ending.add_done_callback(self.ending.discard)

    def restart(self, name: RelayName) -> None:
        """KeyError if there is none."""
        if name not in self.shovels:
            raise KeyError(name)
        self._end(name)
        self._begin(name)

    def _changed(self, name: RelayName, supervised: Supervised) -> None:
        status = supervised.status
        if status.state is State.TERMINATED and not supervised.is_finished:
            self.log.warning("shovel ended", vhost=name.vhost, shovel=name.name, reason=status.reason)
        elif status.state is State.RUNNING:
            self.log.info("shovel runs", vhost=name.vhost, shovel=name.name)
        if supervised.is_finished and self.shovels.get(name) is supervised:
            self.log.info("shovel is done", vhost=name.vhost, shovel=name.name)
            asyncio.get_running_loop().call_soon(self._forget_finished, name)

    def _forget_finished(self, name: RelayName) -> None:
        """A shovel that was to be deleted after some messages goes with its parameter."""
        if name in self.shovels and self.shovels[name].is_finished:
            self.node.change(
                ClearParameter(vhost=name.vhost, component=COMPONENT, name=name.name), lambda _: None
            )
