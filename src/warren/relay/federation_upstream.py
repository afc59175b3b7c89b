"""The upstreams of federation, as RabbitMQ's parameters describe them.

    federation-upstream        {"uri": "amqp://there", "max-hops": 2, "expires": 3600000}
    federation-upstream-set    [{"upstream": "one"}, {"upstream": "other", "exchange": "theirs"}]

A policy names an upstream, a set, or a pattern that the names of upstreams match. The set `all` has every
upstream of the vhost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table
from warren.broker.parameters import Json, Parameters
from warren.broker.pattern import pattern_of
from warren.broker.policy_settings import (
    FEDERATION_UPSTREAM,
    FEDERATION_UPSTREAM_PATTERN,
    FEDERATION_UPSTREAM_SET,
)
from warren.relay.definition_reader import DefinitionReader
from warren.relay.ends import End
from warren.relay.pump import ACK_MODES

UPSTREAM, UPSTREAM_SET = "federation-upstream", "federation-upstream-set"  # components
ALL = "all"
MAX_HOPS_DEFAULT, MAX_HOPS_MAX = 1, 1_000
MILLISECONDS_MAX = 2**32 - 1
UPSTREAMS_IN_SET_MAX = 1_000
QUEUE_TYPES = ("classic", "quorum")
CLEANUP_MODES = ("default", "never")
CHANNEL_USE_MODES = MULTIPLE, SINGLE = "multiple", "single"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    name: str
    ends: tuple[End, ...]  # where it is; tried in turn
    exchange: str | None  # the exchange there; None: of the same name as here
    queue: str | None  # the queue there; None: of the same name as here
    consumer_tag: str  # of a federated queue's consumer there
    prefetch_count: int
    reconnect_seconds: float
    max_hops: int  # how many links a message may pass
    expires: int | None  # ms without a link after which the queue there goes, and the bindings with it
    message_ttl: int | None  # ms that messages wait there for a link
    trust_user_id: bool  # whether messages keep their `user_id`
    ack_mode: str
    queue_type: str | None  # of the queue there that holds messages of an exchange
    ha_policy: str | None  # the argument `x-ha-policy` of that queue, for RabbitMQs that go by it
    is_tidy: bool  # whether that queue is deleted when the exchange is not federated any more
    bind_nowait: bool  # whether bindings there are made without waiting for an answer
    channel_use_mode: str  # whether commands have a channel of their own there


def read_upstream(vhost: str, name: str, value: Json) -> Upstream:
    """406 if the definition makes no sense."""
    reader = DefinitionReader(f"upstream '{name}'", value)
    ends = reader.ends("uri", vhost)
    upstream = Upstream(
        name=name,
        ends=ends,
        exchange=reader.text("exchange") or None,
        queue=reader.text("queue") or None,
        consumer_tag=reader.text("consumer-tag") or f"federation-link-{name}",
        prefetch_count=reader.prefetch_count("prefetch-count"),
        reconnect_seconds=reader.reconnect_seconds(),
        max_hops=reader.whole_number("max-hops", 1, MAX_HOPS_MAX) or MAX_HOPS_DEFAULT,
        expires=reader.whole_number("expires", 1, MILLISECONDS_MAX),
        message_ttl=reader.whole_number("message-ttl", 0, MILLISECONDS_MAX),
        trust_user_id=reader.flag("trust-user-id"),
        ack_mode=reader.one_of("ack-mode", ACK_MODES),
        queue_type=reader.one_of("queue-type", QUEUE_TYPES) if "queue-type" in reader.fields else None,
        ha_policy=reader.text("ha-policy") or None,
        is_tidy=reader.one_of("resource-cleanup-mode", CLEANUP_MODES) != "never",
        bind_nowait=reader.flag("bind-nowait"),
        channel_use_mode=reader.one_of("channel-use-mode", CHANNEL_USE_MODES),
    )
    reader.expect_nothing()
    return upstream


def read_upstream_set(vhost: str, name: str, value: Json) -> list[tuple[str, dict[str, Json]]]:
    """The names of the set's upstreams, and what is different about each here. 406 if it makes no sense."""
    if not isinstance(value, list) or len(value) > UPSTREAMS_IN_SET_MAX:
        raise PreconditionFailed(f"upstream set '{name}': expected a list of objects")
    found = []
    for element in value:
        if not isinstance(element, dict) or not isinstance(element.get("upstream"), str):
            raise PreconditionFailed(f"upstream set '{name}': upstream should be the name of one")
        changes = {key: given for key, given in element.items() if key != "upstream"}
        read_upstream(vhost, f"{name}/{element['upstream']}", {"uri": "amqp://", **changes})
        found.append((str(element["upstream"]), changes))
    return found


def check_upstream(vhost: str, name: str, value: Json) -> None:
    read_upstream(vhost, name, value)


def check_upstream_set(vhost: str, name: str, value: Json) -> None:
    read_upstream_set(vhost, name, value)


def upstreams_by(policy: Table, vhost: str, parameters: Parameters) -> Iterator[Upstream]:
    """The upstreams that a policy's definition asks for. Names that nobody has defined stand for nothing."""
    defined = {name: value for (kind, name), value in parameters.of_vhost(vhost).items() if kind == UPSTREAM}
    for name, changes in _named_by(policy, vhost, parameters, defined):
        value = defined.get(name)
        if isinstance(value, dict):
            yield read_upstream(vhost, name, {**value, **changes})


def _named_by(
    policy: Table, vhost: str, parameters: Parameters, defined: Mapping[str, Json]
) -> list[tuple[str, dict[str, Json]]]:
    upstream, pattern = policy.get(FEDERATION_UPSTREAM), policy.get(FEDERATION_UPSTREAM_PATTERN)
    if isinstance(upstream, str):
        return [(upstream, {})]
    if isinstance(pattern, str):
        return [(name, {}) for name in defined if _matches(pattern, name)]
    wanted = policy.get(FEDERATION_UPSTREAM_SET)
    if wanted == ALL:
        return [(name, {}) for name in defined]
    sets = parameters.of_vhost(vhost)
    if not isinstance(wanted, str) or (UPSTREAM_SET, wanted) not in sets:
        return []
    return read_upstream_set(vhost, wanted, sets[UPSTREAM_SET, wanted])


def _matches(pattern: str, name: str) -> bool:
    try:
        return pattern_of(pattern).is_in(name)
    except ValueError:
        return False  # a policy of an older data directory
