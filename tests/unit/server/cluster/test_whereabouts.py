"""Where others find a node."""

from __future__ import annotations

import pytest

from warren.server.address import Address
from warren.server.cluster.whereabouts import Whereabouts, own_host
from warren.server.config import Config
from warren.server.config_error import ConfigError


def whereabouts(own: str, **settings: str) -> Whereabouts:
    found = Config(cluster="demo", cluster_node="a", **settings).clustering()  # type: ignore[arg-type]
    assert found is not None
    return Whereabouts(found, own)


@pytest.mark.parametrize(
    ("listening", "told"),
    [
        ("10.0.0.5:5672", "10.0.0.5:5672"),
        ("broker-a:5672", "broker-a:5672"),
        ("0.0.0.0:5672", "10.0.0.7:5672"),
        (":5672", "10.0.0.7:5672"),
        ("127.0.0.1:5672,0.0.0.0:5673", "127.0.0.1:5672,10.0.0.7:5673"),
        ("", ""),
    ],
)
def test_a_wildcard_stands_for_the_address_that_leads_to_etcd(listening: str, told: str) -> None:
    assert whereabouts("10.0.0.7").amqp(listening) == told


@pytest.mark.parametrize(("own", "listening"), [("", "0.0.0.0:5672"), ("fe80::7", "0.0.0.0:5672")])
def test_a_wildcard_is_refused_if_nobody_knows_the_address(own: str, listening: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster_advertise has to say .* at 0\.0\.0\.0:5672"):
        whereabouts(own).amqp(listening)


def test_an_advertised_host_may_have_another_port() -> None:
    assert whereabouts("", cluster_advertise="broker-a").amqp("0.0.0.0:5672") == "broker-a:5672"
    assert whereabouts("", cluster_advertise="broker-a:30672").amqp("10.0.0.5:5672") == "broker-a:30672"
    assert whereabouts("", cluster_advertise="fe80::1").amqp("10.0.0.5:5672,10.0.0.6:5") == "[fe80::1]:5672"


def test_the_advertised_host_stands_for_other_wildcards_but_not_for_its_port() -> None:
    where = whereabouts("10.0.0.7", cluster_advertise="broker-a:30672")
    assert where.http("0.0.0.0:15672") == "broker-a:15672"
    assert where.peers("[::]:5680") == "broker-a:5680"
    assert where.peers("10.1.0.5:5680") == "10.1.0.5:5680", "other nodes may have a network of their own"


def test_each_kind_has_its_own_setting() -> None:
    where = whereabouts("", cluster_http_advertise="api:80", cluster_peers_advertise="inner")
    assert where.http("0.0.0.0:15672") == "api:80"
    assert where.http("") == "", "there is no HTTP API"
    assert where.peers("0.0.0.0:5680") == "inner:5680"


def test_a_node_listens_for_others_where_it_reaches_etcd() -> None:
    assert whereabouts("10.0.0.7").peers_bind() == Address("10.0.0.7", 0)
    assert whereabouts("").peers_bind() == Address("127.0.0.1", 0)
    assert whereabouts("", cluster_peers_bind="10.1.0.5:5680").peers_bind() == Address("10.1.0.5", 5680)


async def test_the_way_to_this_machine_tells_nothing() -> None:
    assert (
        await own_host(("http://127.0.0.1:2379", "http://[::1]:2379", "http://no-such-host.invalid:1")) == ""
    )
