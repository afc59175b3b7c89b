"""Which settings nodes of one cluster may have."""

from __future__ import annotations

import pytest

from warren.server.cluster.agreement import disagreement, out_of_reach, same_name, settings_told
from warren.server.config import Config


def told(**settings: float | str) -> dict[str, str]:
    found = Config(cluster="demo", **settings).clustering()  # type: ignore[arg-type]
    assert found is not None
    return settings_told(found)


@pytest.mark.parametrize(
    "theirs",
    [
        {},
        {"cluster_lease": 1.0},
        {"cluster_grace": 6.0},
        {"cluster_replace_after": 10.0},
        {"cluster_replicate": "durable"},
    ],
)
def test_what_may_differ_in_a_rolling_change(theirs: dict[str, float | str]) -> None:
    assert disagreement("b", told(), told(**theirs)) == ""
    assert disagreement("b", told(**theirs), told()) == ""


def test_a_longer_lease_needs_a_longer_grace_everywhere_first() -> None:
    longer_grace = {"cluster_grace": 6.0}
    both = {"cluster_lease": 5.0, "cluster_grace": 6.0}
    text = disagreement("b", told(**both), told())
    assert text.startswith("cluster_lease = 5.0: node 'b' runs with cluster_grace = 2.5")
    text = disagreement("b", told(), told(**both))
    assert text.startswith("cluster_grace = 2.5: node 'b' runs with cluster_lease = 5.0")
    assert disagreement("b", told(**both), told(**longer_grace)) == ""


@pytest.mark.parametrize(
    ("mine", "text"),
    [
        ({"cluster_replicas": 5}, "cluster_replicas = 5: node 'b' runs with 3"),
        ({"cluster_min_in_sync": 1}, "cluster_min_in_sync = 1: node 'b' runs with 2"),
        ({"cluster_replicate": "none"}, "cluster_replicate = none: node 'b' runs with quorum"),
    ],
)
def test_what_must_be_the_same(mine: dict[str, float | str], text: str) -> None:
    assert disagreement("b", told(**mine), told()).startswith(text)
    assert disagreement("b", told(), told(**mine))


def test_an_older_version_told_nothing() -> None:
    assert disagreement("b", told(cluster_replicas=5), {"store": "s", "run": "r"}) == ""


@pytest.mark.parametrize(
    ("peers", "machine", "is_out"),
    [
        ("127.0.0.1:5680", "another", True),
        ("[::1]:5680", "another", True),
        ("127.0.0.1:5680", "this", False),
        ("10.0.0.5:5680", "another", False),
    ],
)
def test_a_loopback_address_is_for_nodes_of_the_same_machine(peers: str, machine: str, is_out: bool) -> None:
    mine = {"peers": peers, "machine": "this"}
    assert bool(out_of_reach("b", mine, {"machine": machine})) is is_out
    assert not out_of_reach("b", mine, {}), "an older version did not tell its machine"


def test_a_name_is_that_of_one_data_directory() -> None:
    assert same_name({"store": "s"}, {"store": "s"}) == same_name({"store": "s"}, {}) == ""
    assert "another data directory" in same_name({"store": "s"}, {"store": "t"})
