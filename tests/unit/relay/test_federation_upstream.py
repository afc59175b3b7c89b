"""Upstreams and sets of them: which definitions are taken, and which upstreams a policy asks for."""

from __future__ import annotations

import pytest

from warren.amqp.errors import PreconditionFailed
from warren.amqp.table import Table
from warren.broker.parameters import Json, Parameters
from warren.relay.federation_upstream import (
    UPSTREAM,
    UPSTREAM_SET,
    check_upstream,
    check_upstream_set,
    read_upstream,
    upstreams_by,
)

URI = "amqp://there"
ALL_FIELDS: dict[str, Json] = {
    "uri": ["amqp://one", "amqps://two/v"],
    "expires": 3_600_000,
    "message-ttl": 0,
    "ack-mode": "on-publish",
    "prefetch-count": 5,
    "reconnect-delay": 1.5,
    "max-hops": 3,
    "trust-user-id": True,
    "exchange": "x",
    "queue": "q",
    "consumer-tag": "tag",
    "ha-policy": "all",
    "bind-nowait": True,
    "channel-use-mode": "single",
    "resource-cleanup-mode": "never",
    "queue-type": "quorum",
}


def test_every_field_of_rabbitmq_is_taken() -> None:
    upstream = read_upstream("v", "up", ALL_FIELDS)
    assert [end.shown for end in upstream.ends] == ["amqp://one:5672/v", "amqps://two:5671/v"]
    assert (upstream.expires, upstream.message_ttl, upstream.ack_mode) == (3_600_000, 0, "on-publish")
    assert (upstream.prefetch_count, upstream.reconnect_seconds, upstream.max_hops) == (5, 1.5, 3)
    assert (upstream.exchange, upstream.queue, upstream.consumer_tag) == ("x", "q", "tag")
    assert (upstream.trust_user_id, upstream.is_tidy, upstream.queue_type) == (True, False, "quorum")
    assert (upstream.ha_policy, upstream.bind_nowait, upstream.channel_use_mode) == ("all", True, "single")


def test_fields_that_are_not_given_have_rabbitmqs_defaults() -> None:
    upstream = read_upstream("v", "up", {"uri": URI})
    assert (upstream.expires, upstream.message_ttl, upstream.ack_mode) == (None, None, "on-confirm")
    assert (upstream.prefetch_count, upstream.reconnect_seconds, upstream.max_hops) == (1000, 5.0, 1)
    assert (upstream.exchange, upstream.queue) == (None, None)
    assert upstream.consumer_tag == "federation-link-up"
    assert (upstream.trust_user_id, upstream.is_tidy, upstream.queue_type) == (False, True, None)
    assert (upstream.ha_policy, upstream.bind_nowait, upstream.channel_use_mode) == (None, False, "multiple")


def test_uri_without_a_path_means_the_vhost_of_the_same_name() -> None:
    vhosts = {uri: read_upstream("v", "up", {"uri": uri}).ends[0].uri.vhost for uri in (URI, URI + "/")}
    assert vhosts == {URI: "v", URI + "/": "/"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1, "upstream 'up': expected an object"),
        ({}, "upstream 'up': uri should be an AMQP URI, or a list of some"),
        ({"uri": []}, "uri should be an AMQP URI"),
        ({"uri": "http://there"}, "uri is wrong: not an amqp:// URI"),
        ({"uri": URI, "max-hops": 0}, "max-hops should be a whole number from 1"),
        ({"uri": URI, "max-hops": "2"}, "max-hops should be a whole number"),
        ({"uri": URI, "expires": 0}, "expires should be a whole number from 1"),
        ({"uri": URI, "message-ttl": 1.5}, "message-ttl should be a whole number"),
        ({"uri": URI, "ack-mode": "sometimes"}, "ack-mode should be one of on-confirm, on-publish, no-ack"),
        ({"uri": URI, "trust-user-id": 1}, "trust-user-id should be true or false"),
        ({"uri": URI, "bind-nowait": 1}, "bind-nowait should be true or false"),
        ({"uri": URI, "ha-policy": 1}, "ha-policy should be a text"),
        ({"uri": URI, "channel-use-mode": "x"}, "channel-use-mode should be one of multiple, single"),
        ({"uri": URI, "queue-type": "stream"}, "queue-type should be one of classic, quorum"),
        ({"uri": URI, "resource-cleanup-mode": "x"}, "resource-cleanup-mode should be one of default, never"),
        ({"uri": URI, "exchange": 5}, "exchange should be a text"),
        ({"uri": URI, "unknown": 5}, "unknown is not known"),
    ],
)
def test_upstream_that_makes_no_sense_is_406_and_says_why(value: Json, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as raised:
        check_upstream("v", "up", value)
    assert reason in raised.value.text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "upstream set 's': expected a list of objects"),
        (["up"], "upstream set 's': upstream should be the name of one"),
        ([{"exchange": "x"}], "upstream set 's': upstream should be the name of one"),
        ([{"upstream": "up", "max-hops": 0}], "upstream 's/up': max-hops should be a whole number"),
        ([{"upstream": "up", "unknown": 0}], "upstream 's/up': unknown is not known"),
    ],
)
def test_set_that_makes_no_sense_is_406_and_says_why(value: Json, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as raised:
        check_upstream_set("v", "s", value)
    assert reason in raised.value.text


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ({"federation-upstream": "one"}, ["one"]),
        ({"federation-upstream": "none"}, []),
        ({"federation-upstream-set": "all"}, ["one", "other"]),
        ({"federation-upstream-set": "s"}, ["other"]),
        ({"federation-upstream-set": "none"}, []),
        ({"federation-upstream-pattern": "^on"}, ["one"]),
        ({"max-length": 5}, []),
    ],
)
def test_policy_asks_for_upstreams_of_its_vhost(policy: Table, names: list[str]) -> None:
    parameters = Parameters()
    for name in ("one", "other"):
        parameters.put(UPSTREAM, "v", name, {"uri": URI})
    parameters.put(UPSTREAM, "elsewhere", "third", {"uri": URI})
    parameters.put(UPSTREAM_SET, "v", "s", [{"upstream": "other"}, {"upstream": "unknown"}])
    assert [upstream.name for upstream in upstreams_by(policy, "v", parameters)] == names


def test_set_changes_fields_of_its_upstreams() -> None:
    parameters = Parameters()
    parameters.put(UPSTREAM, "v", "up", {"uri": URI, "max-hops": 2, "exchange": "x"})
    parameters.put(UPSTREAM_SET, "v", "s", [{"upstream": "up", "exchange": "y"}])
    (upstream,) = upstreams_by({"federation-upstream-set": "s"}, "v", parameters)
    assert (upstream.exchange, upstream.max_hops) == ("y", 2)
