"""How many messages shovels have carried, together and one by one."""

from __future__ import annotations

from collections.abc import Iterable

from warren.broker.vhost import Vhost
from warren.management.prometheus_groups import COUNTER
from warren.management.prometheus_text import Family, labels_text, single
from warren.relay.service import relays_of
from warren.relay.shovel import Shovel
from warren.server.app import Broker

NAME, TEXT = "warren_shovel_messages_total", "Messages that shovels have carried to their destinations"


def together(broker: Broker) -> Family:
    return single(NAME, TEXT, relays_of(broker).carried, COUNTER)


def by_shovel(broker: Broker, vhosts: Iterable[Vhost]) -> Family:
    """A shovel that is restarted counts from 0 again."""
    wanted = {vhost.name for vhost in vhosts}
    samples = [
        ("", labels_text({"vhost": name.vhost, "shovel": name.name}), supervised.relay.carried)
        for name, supervised in relays_of(broker).shovels.items()
        if name.vhost in wanted and isinstance(supervised.relay, Shovel)
    ]
    return Family(NAME, TEXT, COUNTER, samples)
