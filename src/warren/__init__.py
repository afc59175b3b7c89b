"""WarrenMQ: a message broker that speaks AMQP 0-9-1.

The broker is imported when it is first used, so that a command that only speaks to one starts without it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from warren.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warren.broker import commands, events
    from warren.server.app import Broker
    from warren.server.config import Config

__all__ = ["Broker", "Config", "__version__", "commands", "events", "spark_session"]

_PLACES = {
    "Broker": "warren.server.app:Broker",
    "Config": "warren.server.config:Config",
    "commands": "warren.broker.commands",
    "events": "warren.broker.events",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'warren' has no attribute '{name}'")
    return pkgutil.resolve_name(_PLACES[name])


def spark_session(
    app_name: str = "warren",
    *,
    master: str = "local[*]",
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session that reads and writes queues, on `master`, or through Spark Connect on `remote`.

    Spark's workers run this Python, whatever the PATH says. Java is a suitable one of this machine, or that
    of the extra `spark`. Times are in UTC. `conf` has further settings of Spark, and overrides those made
    here. If a session that was made in this way is running already, it is returned.
    """
    from warren.pipeline.session import open_session  # noqa: PLC0415 - Spark is an extra, and takes long

    return open_session(app_name=app_name, master=master, remote=remote, conf=conf)
