"""What the demo asks its brokers, over their HTTP API. All of it blocks, and runs in threads."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field

from warren.client.api import Api, ApiError, Row, Unreachable
from warren.client.http_url import parse_http_url

ANSWER_SECONDS_MAX = 10.0
LEADING = "open"
QUEUE_COLUMNS = "vhost,name,leader,messages"


@dataclass(frozen=True)
class Told:
    """What one broker says of the cluster."""

    led: frozenset[int] = field(default_factory=frozenset)  # the shards that it leads, and serves
    kept: Counter[str] = field(default_factory=Counter)  # by node: shards that it keeps, or gets
    in_sync: Counter[str] = field(default_factory=Counter)  # by node: shards of which it has everything
    preferred: dict[int, str] = field(default_factory=dict)  # by shard: the node that should lead it


def ask(url: str) -> Told | None:
    """None if the broker does not answer."""
    try:
        with Api(parse_http_url(url), answer_seconds_max=ANSWER_SECONDS_MAX) as api:
            shards: list[Row] = api.get("cluster", "shards")
    except (ApiError, Unreachable):
        return None
    kept = Counter(node for shard in shards for node in (*shard["replicas"], *shard["joining"]))
    in_sync = Counter(node for shard in shards for node in shard["in_sync"])
    led = frozenset(int(shard["number"]) for shard in shards if shard["role"] == LEADING)
    preferred = {int(shard["number"]): str(shard["replicas"][0]) for shard in shards}
    return Told(led, kept, in_sync, preferred)


def move(url: str, shard: int, node: str) -> None:
    """Ask a broker to hand a shard over. If it cannot be done now, nothing is changed."""
    with contextlib.suppress(ApiError, Unreachable), Api(parse_http_url(url)) as api:
        api.put("cluster", "shards", str(shard), "leader", content={"node": node})


def queues_at(url: str) -> list[Row]:
    """Its queues that several nodes keep; none if it does not answer."""
    try:
        with Api(parse_http_url(url), answer_seconds_max=ANSWER_SECONDS_MAX) as api:
            query = {"columns": QUEUE_COLUMNS, "page": "1", "page_size": "100"}
            found: list[Row] = api.get("queues", query=query)["items"]
    except (ApiError, Unreachable):
        return []
    return [queue for queue in found if "leader" in queue]
