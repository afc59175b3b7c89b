"""Static shovels: those that the configuration describes, with the keys of the parameters of other shovels.

[[shovels]]
name = "orders"
src-uri = "amqp://"
src-queue = "orders"
dest-uri = "amqp://user:password@there"
dest-queue = "orders"
"""

from __future__ import annotations

from warren.amqp.errors import PreconditionFailed
from warren.relay.shovel_definition import ShovelDefinition, read_shovel
from warren.server.config import Config
from warren.server.config_error import ConfigError


def static_shovels(config: Config) -> dict[tuple[str, str], ShovelDefinition]:
    """The definitions by vhost and name. `ConfigError` if one of them makes no sense."""
    found: dict[tuple[str, str], ShovelDefinition] = {}
    for shovel in config.shovels:
        if (shovel.vhost, shovel.name) in found:
            raise ConfigError(f"shovels: '{shovel.name}' is there twice in vhost '{shovel.vhost}'")
        try:
            found[shovel.vhost, shovel.name] = read_shovel(shovel.name, shovel.definition)
        except PreconditionFailed as error:
            raise ConfigError(f"shovels: {error.text}") from None
    return found
