"""Services that run in a broker beside AMQP, found by name in the entry-point group `warren.services`.

Through entry points the server can start packages of a higher layer without importing them. The HTTP API is
the service `http`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias

from warren.server.config_error import ConfigError

GROUP = "warren.services"


class Service(Protocol):
    """`start` is called once the node has all its definitions, `stop` before its connections are closed."""

    @property
    def address(self) -> str:
        """Where the service listens, as host:port."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


ServiceFactory: TypeAlias = Callable[[Any], Service]
"""Called with the `Broker`: `Any`, since this module is below it and cannot import it."""


def load_service(name: str) -> ServiceFactory:
    for point in entry_points(group=GROUP, name=name):
        factory: ServiceFactory = point.load()
        return factory
    raise ConfigError(f"there is no service '{name}': the installation of WarrenMQ is not complete")
