from __future__ import annotations

from tests.unit.broker.exchange.routing import bind, routed
from warren.broker.exchange.direct import Direct


def test_key_leads_to_every_binding_that_equals_it() -> None:
    router = Direct({})
    for name, key in (("a", "k"), ("b", "k"), ("c", "K"), ("d", "k.")):
        bind(router, name, key)
    assert routed(router, "k") == ["a", "b"]
    assert routed(router, "") == []


def test_unbound_destination_gets_nothing_more_and_the_others_do() -> None:
    router = Direct({})
    bind(router, "a", "k")
    gone = bind(router, "b", "k")
    router.unbind(gone)
    assert routed(router, "k") == ["a"]


def test_last_unbinding_leaves_nothing_behind() -> None:
    router = Direct({})
    router.unbind(bind(router, "a", "k"))
    assert router.by_key == {}
