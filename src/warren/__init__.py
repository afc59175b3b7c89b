"""WarrenMQ: a message broker that speaks AMQP 0-9-1."""

from warren.broker import commands, events
from warren.server.app import Broker
from warren.server.config import Config
from warren.version import __version__

__all__ = ["Broker", "Config", "__version__", "commands", "events"]
