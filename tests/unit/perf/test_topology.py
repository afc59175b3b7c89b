from __future__ import annotations

from warren.perf.topology import Layout


def test_one_queue_has_the_name_itself() -> None:
    assert Layout(name="orders").queue_names() == ["orders"]


def test_several_queues_are_numbered() -> None:
    assert Layout(name="orders", queues=3).queue_names() == ["orders-1", "orders-2", "orders-3"]


def test_without_a_name_every_run_has_its_own() -> None:
    assert Layout().queue_names() != Layout().queue_names()
