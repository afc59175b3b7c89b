"""Letters over links that end, to leaders that change: none is lost, and none overtakes another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cluster.letter_nodes import Cluster, message
from warren.cluster.config import StoreId
from warren.cluster.letters import Line

B, C = StoreId("b"), StoreId("c")
STORES = st.sampled_from([B, C])
Step: TypeAlias = Callable[[Cluster, Line, list[int]], object]


def put(cluster: Cluster, line: Line, safe: list[int]) -> None:
    number = line.gathering + 1

    def is_safe(_number: int) -> None:
        assert number in cluster.safe_in_queue(), "the next leader could be without it"
        safe.append(number)

    line.put(message(number))
    line.when_safe(is_safe)


def lead(store: StoreId | None) -> Step:
    return lambda cluster, _line, _safe: cluster.lead(store)


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.just(put),
    st.just(lambda cluster, _line, _safe: cluster.pass_time(0)),
    STORES.map(lambda store: lambda cluster, _line, _safe: cluster.deliver(store)),
    STORES.map(lambda store: lambda cluster, _line, _safe: cluster.answer(store)),
    st.just(lambda cluster, _line, _safe: cluster.commit()),
    st.sampled_from([0.0, 0.1, 1.0, 20.0]).map(
        lambda seconds: lambda cluster, _line, _safe: cluster.pass_time(seconds)
    ),
    STORES.map(lambda store: lambda cluster, _line, _safe: cluster.link_up(store)),
    STORES.map(lambda store: lambda cluster, _line, _safe: cluster.link_down(store)),
    STORES.map(lambda store: lambda cluster, _line, _safe: cluster.link_back_up(store)),
    STORES.map(lambda store: lambda cluster, _line, _safe: cluster.restart(store)),
    st.sampled_from([B, C, None]).map(lead),
)


@given(st.lists(STEPS, min_size=30, max_size=100))
def test_every_letter_gets_there_in_order(steps: list[Step]) -> None:
    cluster = Cluster("b", "c")
    line, safe = cluster.open(), list[int]()
    cluster.lead(B)
    cluster.link_up(B)
    for step in steps:
        step(cluster, line, safe)
        led = None if cluster.leader is None else cluster.leader.queue
        assert led is None or len(set(led.bodies)) == len(led.bodies), "twice in one term"
    if cluster.leader is None:
        cluster.lead(B)
    cluster.settle()
    wanted = list(range(1, line.gathering + 1))
    assert list(dict.fromkeys(cluster.in_queue())) == wanted
    assert safe == wanted
    assert not line.unsettled
    assert all(flight.letters == flight.bytes == 0 for flight in cluster.sender.in_flight.values())
