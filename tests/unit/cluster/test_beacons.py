"""Lease and grace."""

from __future__ import annotations

import pytest

from warren.cluster.beacons import Lease, Patience
from warren.cluster.config import StoreId
from warren.cluster.settings import Settings

B, C = StoreId("b"), StoreId("c")


def test_a_leader_may_deliver_while_all_members_have_echoed_a_young_beacon() -> None:
    lease = Lease(1.5)
    assert not lease.holds((B, C), 10.0)
    lease.echo(B, 10.0, 10.1)
    assert not lease.holds((B, C), 10.1)
    lease.echo(C, 10.0, 10.1)
    assert lease.holds((B, C), 11.4)
    assert not lease.holds((B, C), 11.5)


def test_a_beacon_counts_from_when_it_was_sent_not_from_its_echo() -> None:
    lease = Lease(1.5)
    lease.echo(B, 10.0, 14.0)
    assert lease.has_lapsed(B, 14.0)


def test_echoes_of_older_beacons_and_of_the_future_change_nothing() -> None:
    lease = Lease(1.5)
    lease.echo(B, 10.0, 10.1)
    lease.echo(B, 9.0, 10.2)
    lease.echo(B, 99.0, 10.3)
    assert lease.echoed[B] == 10.0


def test_a_leader_without_other_members_needs_no_echo() -> None:
    assert Lease(1.5).holds((), 5.0)


def test_a_follower_is_patient_from_its_start_and_from_each_beacon() -> None:
    patience = Patience(2.5, 100.0)
    assert patience.ends_at == 102.5
    patience.hear(101.0)
    patience.hear(100.5)
    assert patience.ends_at == 103.5


def test_the_lease_must_end_before_the_grace() -> None:
    with pytest.raises(ValueError, match="before the grace"):
        Settings(lease=2.5, grace=2.5)
    with pytest.raises(ValueError, match="one store"):
        Settings(min_in_sync=0)
