from __future__ import annotations

from tests.unit.broker.exchange.routing import bind, routed
from warren.broker.exchange.fanout import Fanout


def test_every_binding_gets_every_key() -> None:
    router = Fanout({})
    bind(router, "a", "k")
    gone = bind(router, "b", "other")
    assert routed(router, "k") == routed(router, "") == ["a", "b"]
    router.unbind(gone)
    assert routed(router, "k") == ["a"]
