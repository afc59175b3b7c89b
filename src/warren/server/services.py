"""What runs beside AMQP in a broker: services of the entry-point group `warren.services`, found by name.

So what is above the server can be started by it without its knowing that. The HTTP API is the service `http`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias

from warren.server.config_error import ConfigError

GROUP = "warren.services"


class Service(Protocol):
    """`start` comes when the node has all its definitions, `stop` before its connections are closed."""

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


ServiceFactory: TypeAlias = Callable[[Any], Service]
"""Called with the `Broker`, which is above this module and starts its services."""


def load_service(name: str) -> ServiceFactory:
    for point in entry_points(group=GROUP, name=name):
        factory: ServiceFactory = point.load()
        return factory
    raise ConfigError(f"there is no service '{name}': the installation of WarrenMQ is not complete")
