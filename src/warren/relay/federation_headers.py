"""What federation notes in the headers of a message that it carries, with RabbitMQ's names."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from warren.amqp.methods import BasicPublish
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Int64, Table
from warren.broker.message import Message
from warren.broker.received_from import CLUSTER_NAME, RECEIVED_FROM, VHOST, may_go_on, stations
from warren.relay.pump import Rewrite
from warren.relay.shovel import name_in

CACHED_MAX = 1024  # properties, and methods, that were the same in messages before
VISIT_COUNT = "visit-count"


def rewrite_for_exchange(
    exchange: str,
    station: Table,
    *,
    max_hops: int,
    here: tuple[str, str],
    trust_user_id: bool,
) -> Rewrite:
    """Messages go to this exchange with their own key, unless they have come far enough, or were here before:
    `here` is the name of this cluster, and the vhost. `station` tells where they come from.
    """

    @lru_cache(CACHED_MAX)
    def method_for(key: bytes) -> bytes:
        return BasicPublish(exchange=exchange, routing_key=name_in(key)).encode()

    @lru_cache(CACHED_MAX)
    def properties_for(raw: bytes, redelivered: bool) -> bytes | None:
        properties = decode_properties(raw)
        headers = properties.headers or {}
        if not may_go_on(headers, max_hops, *here):
            return None
        now = with_station(headers, {**station, "redelivered": redelivered})
        return encoded(properties, now, trust_user_id=trust_user_id)

    def rewrite(message: Message, redelivered: bool) -> tuple[bytes, bytes] | None:
        properties = properties_for(message.properties, redelivered)
        return None if properties is None else (method_for(message.routing_key), properties)

    return rewrite


def rewrite_for_queue(
    queue: str, station: Table, *, seen: Callable[[], None], trust_user_id: bool
) -> Rewrite:
    """Messages go to this queue, with notes of how they were first published. `seen` is called for each."""
    method = BasicPublish(exchange="", routing_key=queue).encode()

    @lru_cache(CACHED_MAX)
    def properties_for(raw: bytes, exchange: bytes, key: bytes, redelivered: bool) -> bytes:
        properties = decode_properties(raw)
        headers = {("x-original-cc" if k == "CC" else k): v for k, v in (properties.headers or {}).items()}
        if not isinstance(headers.get(RECEIVED_FROM), list):
            headers |= {"x-original-exchange": name_in(exchange), "x-original-routing-key": name_in(key)}
        now = with_visit(headers, {**station, "redelivered": redelivered})
        return encoded(properties, now, trust_user_id=trust_user_id)

    def rewrite(message: Message, redelivered: bool) -> tuple[bytes, bytes]:
        seen()
        return method, properties_for(message.properties, message.exchange, message.routing_key, redelivered)

    return rewrite


def exchange_station(uri: str, exchange: str, cluster_name: str | None, vhost: str) -> Table:
    station: Table = {"uri": uri, "exchange": exchange}
    if cluster_name is not None:
        station[CLUSTER_NAME] = cluster_name
    return {**station, VHOST: vhost}


def with_station(headers: Table, station: Table) -> Table:
    return {**headers, RECEIVED_FROM: [station, *stations(headers, RECEIVED_FROM)]}


def with_visit(headers: Table, station: Table) -> Table:
    """A message may come from one queue more than once: then it is one station, with the number of visits."""
    visits, others = 0, []
    for before in stations(headers, RECEIVED_FROM):
        if isinstance(before, dict) and all(before.get(key) == station[key] for key in ("uri", "queue")):
            count = before.get(VISIT_COUNT)
            visits += count if isinstance(count, int) else 0
        else:
            others.append(before)
    return {**headers, RECEIVED_FROM: [{**station, VISIT_COUNT: Int64(visits + 1)}, *others]}


def encoded(properties: BasicProperties, headers: Table, *, trust_user_id: bool) -> bytes:
    properties.headers = headers
    if not trust_user_id:
        properties.user_id = None
    return properties.encode()
