"""Routes through bindings between exchanges and through alternate exchanges, and which are remembered."""

from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker import commands
from warren.broker.exchange import exchange
from warren.broker.node import Node
from warren.broker.vhost import Vhost


class Topology:
    """A vhost, with short methods to fill it."""

    def __init__(self) -> None:
        self.node: Node = make_node(FakeWorld())
        self.vhost: Vhost = self.node.vhosts["/"]

    def exchange(
        self, name: str, kind: str = "direct", alternate: str | None = None, *, auto_delete: bool = False
    ) -> None:
        arguments: Table = {} if alternate is None else {"alternate-exchange": alternate}
        self.node.execute(
            commands.DeclareExchange(
                vhost="/", name=name, type=kind, arguments=arguments, auto_delete=auto_delete
            )
        )

    def queues(self, *names: str) -> None:
        for name in names:
            self.node.execute(commands.DeclareQueue(vhost="/", name=name))

    def bind(self, source: str, destination: str, key: str = "", arguments: Table | None = None) -> None:
        self.node.execute(self._command(commands.Bind, source, destination, key, arguments))

    def unbind(self, source: str, destination: str, key: str = "", arguments: Table | None = None) -> None:
        self.node.execute(self._command(commands.Unbind, source, destination, key, arguments))

    def _command(
        self,
        kind: type[commands.Bind | commands.Unbind],
        source: str,
        destination: str,
        key: str,
        arguments: Table | None,
    ) -> commands.Bind | commands.Unbind:
        return kind(
            vhost="/",
            source=source,
            destination=destination,
            to_queue=destination in self.vhost.queues,
            routing_key=key,
            arguments=arguments or {},
        )

    def walk(self, exchange: str, *keys: str, headers: Table | None = None) -> list[str]:
        found = self.vhost.walk(self.vhost.exchanges[exchange], list(keys), BasicProperties(headers=headers))
        return sorted(queue.name for queue in found)

    def route(self, exchange: str, key: str) -> list[str]:
        found = self.vhost.route(self.vhost.exchanges[exchange], encode_name(key))
        return sorted(queue.name for queue in found)


@pytest.fixture
def topology() -> Topology:
    made = Topology()
    made.queues("q1", "q2", "q3")
    return made


def test_default_exchange_leads_to_the_queue_of_that_name(topology: Topology) -> None:
    assert topology.walk("", "q1") == ["q1"]
    assert topology.walk("", "unknown") == []


def test_queue_that_several_bindings_match_is_reached_once(topology: Topology) -> None:
    topology.exchange("e", "topic")
    for key in ("a.*", "*.b", "#", "a.b"):
        topology.bind("e", "q1", key)
    found = topology.vhost.walk(topology.vhost.exchanges["e"], ["a.b"], BasicProperties())
    assert [queue.name for queue in found] == ["q1"]


def test_message_goes_on_from_exchange_to_exchange(topology: Topology) -> None:
    topology.exchange("first", "topic")
    topology.exchange("second", "fanout")
    topology.exchange("third")
    topology.bind("first", "second", "a.#")
    topology.bind("second", "third", "ignored")
    topology.bind("second", "q1")
    topology.bind("third", "q2", "a.b")
    topology.bind("third", "q3", "a.c")
    assert topology.walk("first", "a.b") == ["q1", "q2"]
    assert topology.walk("first", "b") == []


def test_loops_of_exchanges_end_and_reach_each_queue_once(topology: Topology) -> None:
    for number, name in enumerate(("a", "b", "c"), 1):
        topology.exchange(name, "fanout")
        topology.bind(name, f"q{number}")
    for source, destination in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")):
        topology.bind(source, destination)
    for start in ("a", "b", "c"):
        assert topology.walk(start, "k") == ["q1", "q2", "q3"]


def test_alternate_exchange_gets_what_matches_no_binding(topology: Topology) -> None:
    topology.exchange("e", alternate="spare")
    topology.exchange("spare", "fanout")
    topology.bind("e", "q1", "known")
    topology.bind("spare", "q2")
    assert topology.walk("e", "known") == ["q1"]
    assert topology.walk("e", "unknown") == ["q2"]


def test_alternate_exchanges_form_chains_and_loops(topology: Topology) -> None:
    topology.exchange("a", alternate="b")
    topology.exchange("b", alternate="c")
    topology.exchange("c", alternate="a")
    assert topology.walk("a", "k") == []
    topology.bind("c", "q1", "k")
    assert topology.walk("a", "k") == ["q1"]


def test_alternate_exchange_of_an_exchange_on_the_way_counts(topology: Topology) -> None:
    topology.exchange("first", "fanout")
    topology.exchange("second", alternate="spare")
    topology.exchange("spare", "fanout")
    topology.bind("first", "second")
    topology.bind("first", "q1")
    topology.bind("spare", "q2")
    assert topology.walk("first", "k") == ["q1", "q2"]


def test_alternate_exchange_that_is_missing_is_passed_over_until_it_is_there(topology: Topology) -> None:
    topology.exchange("e", alternate="spare")
    assert topology.route("e", "k") == []
    topology.exchange("spare", "fanout")
    topology.bind("spare", "q1")
    assert topology.route("e", "k") == ["q1"]


def test_every_key_of_a_message_is_followed(topology: Topology) -> None:
    topology.exchange("e")
    topology.bind("e", "q1", "a")
    topology.bind("e", "q2", "b")
    assert topology.walk("e", "a", "b", "c") == ["q1", "q2"]


def test_remembered_route_is_dropped_when_bindings_change(topology: Topology) -> None:
    topology.exchange("first", "fanout")
    topology.exchange("second")
    topology.bind("first", "second")
    assert topology.route("first", "k") == []
    topology.bind("second", "q1", "k")
    assert topology.route("first", "k") == ["q1"]
    topology.unbind("second", "q1", "k")
    assert topology.route("first", "k") == []
    topology.bind("second", "q2", "k")
    topology.unbind("first", "second")
    assert topology.route("first", "k") == []


def test_remembered_route_is_dropped_when_a_queue_or_exchange_on_it_goes(topology: Topology) -> None:
    topology.exchange("first", "fanout")
    topology.exchange("second", "fanout")
    topology.bind("first", "second")
    topology.bind("second", "q1")
    topology.bind("second", "q2")
    assert topology.route("first", "k") == ["q1", "q2"]
    topology.node.execute(commands.DeleteQueue(vhost="/", name="q1"))
    assert topology.route("first", "k") == ["q2"]
    topology.node.execute(commands.DeleteExchange(vhost="/", name="second"))
    assert topology.route("first", "k") == []


def test_route_is_remembered_while_nothing_changes(topology: Topology) -> None:
    topology.exchange("e")
    topology.bind("e", "q1", "k")
    first = topology.vhost.route(topology.vhost.exchanges["e"], b"\x01k")
    assert topology.vhost.route(topology.vhost.exchanges["e"], b"\x01k") is first


def test_remembered_routes_are_bounded(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ROUTES_CACHED_MAX", 10)
    topology.exchange("e", "fanout")
    topology.bind("e", "q1")
    assert all(topology.route("e", f"k{number}") == ["q1"] for number in range(100))
    assert len(topology.vhost.exchanges["e"].routes) <= 10


def test_remembered_routes_to_very_many_queues_are_bounded(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ROUTED_QUEUES_CACHED_MAX", 10)
    topology.exchange("e", "fanout")
    for queue in ("q1", "q2", "q3"):
        topology.bind("e", queue)
    for number in range(100):
        assert len(topology.route("e", f"k{number}")) == 3
        assert len(topology.vhost.exchanges["e"].routes) <= 3


def test_route_by_an_alternate_that_is_the_default_exchange_follows_its_queues(topology: Topology) -> None:
    topology.exchange("e", alternate="")
    assert topology.route("e", "q1") == ["q1"]
    topology.node.execute(commands.DeleteQueue(vhost="/", name="q1"))
    assert topology.route("e", "q1") == []
    topology.queues("q1")
    assert topology.route("e", "q1") == ["q1"]


@pytest.mark.parametrize("alternate", [None, "amq.headers"])
def test_exchange_depends_on_properties_if_one_that_it_leads_to_does(
    topology: Topology, alternate: str | None
) -> None:
    topology.exchange("first", "fanout", alternate)
    topology.exchange("second", "fanout")
    depends = topology.vhost.depends_on_properties
    first = topology.vhost.exchanges["first"]
    topology.bind("second", "first")
    topology.bind("first", "second")
    assert depends(first) is (alternate is not None)
    topology.bind("second", "amq.match")
    assert depends(first)
    topology.unbind("second", "amq.match")
    assert depends(first) is (alternate is not None)


def test_headers_decide_at_an_exchange_on_the_way(topology: Topology) -> None:
    topology.exchange("first", "fanout")
    topology.bind("first", "amq.headers")
    topology.bind("amq.headers", "q1", arguments={"colour": "red"})
    assert topology.walk("first", "k", headers={"colour": "red"}) == ["q1"]
    assert topology.walk("first", "k", headers={"colour": "blue"}) == []


def test_same_binding_twice_is_one_binding(topology: Topology) -> None:
    topology.exchange("e")
    both: list[Table] = [{}, {"a": 1}]
    for arguments in both:
        topology.bind("e", "q1", "k", arguments)
        topology.bind("e", "q1", "k", arguments)
    assert len(topology.vhost.exchanges["e"].bindings) == 2
    topology.unbind("e", "q1", "k")
    assert topology.route("e", "k") == ["q1"]
    topology.unbind("e", "q1", "k", {"a": 1})
    assert topology.route("e", "k") == []


def test_auto_delete_exchange_goes_with_its_last_binding(topology: Topology) -> None:
    topology.exchange("e", auto_delete=True)
    topology.bind("e", "q1", "k")
    topology.bind("e", "q2", "k")
    topology.unbind("e", "q1", "k")
    assert "e" in topology.vhost.exchanges
    topology.node.execute(commands.DeleteQueue(vhost="/", name="q2"))
    assert "e" not in topology.vhost.exchanges


def test_auto_delete_exchanges_in_a_row_go_one_after_the_other(topology: Topology) -> None:
    topology.exchange("first", "fanout", auto_delete=True)
    topology.exchange("second", "fanout", auto_delete=True)
    topology.bind("first", "second")
    topology.bind("second", "q1")
    topology.unbind("second", "q1")
    assert {"first", "second"}.isdisjoint(topology.vhost.exchanges)


def test_auto_delete_exchanges_in_a_loop_go_without_end_of_it(topology: Topology) -> None:
    topology.exchange("a", "fanout", auto_delete=True)
    topology.exchange("b", "fanout", auto_delete=True)
    topology.bind("a", "b")
    topology.bind("b", "a")
    topology.unbind("a", "b")
    assert {"a", "b"}.isdisjoint(topology.vhost.exchanges)


def test_deleted_exchange_takes_its_bindings_along_both_ways(topology: Topology) -> None:
    for name in ("before", "middle"):
        topology.exchange(name, "fanout")
    topology.bind("before", "middle")
    topology.bind("middle", "q1")
    topology.node.execute(commands.DeleteExchange(vhost="/", name="middle"))
    assert not topology.vhost.exchanges["before"].bindings
    assert not topology.vhost.queues["q1"].incoming


def test_published_message_follows_a_binding_made_a_moment_ago() -> None:
    client = FakeClient(make_node(FakeWorld())).open()
    queue = client.declare("q")
    client.publish("amq.direct", "k", b"before")
    client.bind("q", "amq.direct", "k")
    client.publish("amq.direct", "k", b"after")
    assert queue.message_count == 1
