"""Exchange federation between brokers of our own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

import warren
from tests.support.federation import (
    V,
    are_running,
    bind,
    bindings_of,
    bodies_of,
    count_in,
    declare_exchange,
    federate,
    federation_of,
    has_key,
    named_broker,
    publish,
    received_from,
    set_upstream,
    take,
    until,
)
from tests.unit.management.fake_cluster import FakeCluster
from tests.unit.relay.yard import put_into
from warren.amqp.methods import ExchangeBind, ExchangeBindOk, decode_method
from warren.broker import commands as c
from warren.broker.access import Permissions
from warren.broker.events import BindingCreated
from warren.client.frames import method_frame
from warren.client.uri import parse_uri
from warren.relay.federation_exchange import ask_all
from warren.relay.link import RelayLink
from warren.relay.supervisor import State
from warren.session.connection import connections_of

QUEUE = "federation: x -> down"


async def test_only_the_node_that_runs_a_link_tidies_up_upstream(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up)
    down.cluster = FakeCluster()  # in which another node is the first
    (running,) = federation_of(down).all()
    running.supervised.look()
    assert running.supervised.status.state is State.ELSEWHERE
    down.execute(c.DeletePolicy(vhost=V, name="federated"))
    await until(lambda: not federation_of(down).all() and not federation_of(down).ending)
    assert QUEUE in up.node.vhosts[V].queues
    down.cluster = None


async def begin(down: warren.Broker, up: warren.Broker, **upstream: Any) -> None:
    """A federated exchange `x`, whose link runs."""
    declare_exchange(down, "x")
    set_upstream(down, "up", up.url, **upstream)
    federate(down, "^x$")
    await until(lambda: are_running(down, 1))


async def test_messages_of_the_upstream_come_with_their_key_and_where_they_were(
    up: warren.Broker, down: warren.Broker
) -> None:
    bind_first = ("a.#", "q")
    declare_exchange(down, "x")
    bind(down, "x", "q", "a.#")
    set_upstream(down, "up", up.url)
    federate(down, "^x$")
    await until(lambda: has_key(up, "x", bind_first[0]))
    await publish(up.url, "x", "b.1", b"of no interest")
    await publish(up.url, "x", "a.1", b"one", headers={"mine": 1}, message_id="m")
    (message,) = await take(down.url, "q", 1)
    assert (message.body, message.routing_key, message.exchange) == (b"one", "a.1", "x")
    assert message.message_id == "m"
    assert message.headers["mine"] == 1
    assert message.headers["x-received-from"] == [
        {
            "uri": f"amqp://{up.address}",
            "exchange": "x",
            "cluster-name": "up",
            "vhost": "/",
            "redelivered": False,
        }
    ]
    await until(lambda: count_in(up, QUEUE) == 0 and not up.node.vhosts[V].queues[QUEUE].unacked)


async def test_bindings_come_and_go(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    assert bindings_of(up, "x") == []
    bind(down, "x", "q", "one")
    bind(down, "x", "other", "one")
    bind(down, "x", "other", "two")
    await until(lambda: has_key(up, "x", "two"))
    internal = f"{QUEUE} A"
    assert bindings_of(up, "x") == [("one", internal), ("two", internal)]
    down.execute(c.DeleteQueue(vhost=V, name="other"))
    await until(lambda: not has_key(up, "x", "two"))
    assert bindings_of(up, "x") == [("one", internal)]
    down.execute(c.Unbind(vhost=V, source="x", destination="q", to_queue=True, routing_key="one"))
    await until(lambda: bindings_of(up, "x") == [])


@pytest.mark.parametrize("kind", ["direct", "fanout", "headers"])
async def test_every_type_of_exchange_is_federated(up: warren.Broker, down: warren.Broker, kind: str) -> None:
    declare_exchange(down, "x", kind)
    bind(down, "x", "q", "k", **({"colour": "red"} if kind == "headers" else {}))
    set_upstream(down, "up", up.url)
    federate(down, "^x$")
    await until(lambda: has_key(up, "x", "k"))
    assert up.node.vhosts[V].exchanges["x"].type == kind
    await publish(up.url, "x", "k", b"blue", headers={"colour": "blue"})
    await publish(up.url, "x", "k", b"red", headers={"colour": "red"})
    wanted = [b"red"] if kind == "headers" else [b"blue", b"red"]
    assert bodies_of(await take(down.url, "q", len(wanted))) == wanted


async def test_bindings_of_exchanges_to_exchanges_go_upstream(up: warren.Broker, down: warren.Broker) -> None:
    declare_exchange(down, "behind", "fanout")
    bind(down, "behind", "q")
    await begin(down, up)
    down.execute(c.Bind(vhost=V, source="x", destination="behind", to_queue=False, routing_key="k.*"))
    await until(lambda: has_key(up, "x", "k.*"))
    await publish(up.url, "x", "k.1", b"one")
    assert bodies_of(await take(down.url, "q", 1)) == [b"one"]


async def test_exchange_upstream_may_have_another_name(up: warren.Broker, down: warren.Broker) -> None:
    declare_exchange(up, "theirs")
    await begin(down, up, exchange="theirs")
    bind(down, "x", "q")
    await until(lambda: has_key(up, "theirs", "#"))
    assert bindings_of(up, "theirs") == [("#", "federation: theirs -> down:x A")]
    await publish(up.url, "theirs", "k", b"one")
    assert bodies_of(await take(down.url, "q", 1)) == [b"one"]


async def test_nothing_is_left_upstream_when_the_policy_goes(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up, expires=60_000, message_ttl=30_000)
    made = up.node.vhosts[V].queues[QUEUE]
    assert made.durable
    assert (made.arguments["x-expires"], made.arguments["x-message-ttl"]) == (60_000, 30_000)
    down.execute(c.DeletePolicy(vhost=V, name="federated"))
    await until(lambda: QUEUE not in up.node.vhosts[V].queues)
    await until(lambda: not federation_of(down).ending)
    assert [name for name in up.node.vhosts[V].exchanges if name.startswith("federation")] == []
    assert federation_of(down).all() == []


async def test_queue_upstream_stays_if_it_is_not_to_be_cleaned_up(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up, resource_cleanup_mode="never")
    down.execute(c.ClearParameter(vhost=V, component="federation-upstream", name="up"))
    await until(lambda: not federation_of(down).ending and not federation_of(down).all())
    assert QUEUE in up.node.vhosts[V].queues


async def test_messages_wait_upstream_while_the_downstream_is_away(up: warren.Broker, tmp_path: Path) -> None:
    async with named_broker("down", tmp_path) as down:
        await begin(down, up)
        bind(down, "x", "q")
        await until(lambda: has_key(up, "x", "#"))
    await publish(up.url, "x", "k", b"one", b"two")
    assert count_in(up, QUEUE) == 2
    async with named_broker("down", tmp_path) as down:
        assert bodies_of(await take(down.url, "q", 2)) == [b"one", b"two"]
        await until(lambda: are_running(down, 1))
        assert bindings_of(up, "x") == [("#", f"{QUEUE} B")]


async def test_bindings_that_went_while_the_link_was_away_go_upstream_as_well(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up)
    bind(down, "x", "q", "one")
    bind(down, "x", "q", "two")
    await until(lambda: has_key(up, "x", "two"))
    down.execute(c.ClearParameter(vhost=V, component="federation-upstream", name="up"))
    down.execute(c.Unbind(vhost=V, source="x", destination="q", to_queue=True, routing_key="one"))
    set_upstream(down, "up", up.url)
    await until(lambda: are_running(down, 1))
    assert [key for key, _ in bindings_of(up, "x")] == ["two"]


async def test_upstream_that_dies_and_comes_back_is_found_again(down: warren.Broker, tmp_path: Path) -> None:
    up = named_broker("up", tmp_path)
    await up.start()
    try:
        await begin(down, up)
        port = up.port
        bind(down, "x", "q")
        await until(lambda: has_key(up, "x", "#"))
    finally:
        await up.stop()
    await until(lambda: not are_running(down, 1))
    bind(down, "x", "q", "while.away")
    again = named_broker("up", tmp_path, port=port)
    async with again:
        await until(lambda: are_running(down, 1))
        assert has_key(again, "x", "while.away")
        await publish(again.url, "x", "k", b"one")
        assert bodies_of(await take(down.url, "q", 1)) == [b"one"]
        await down.stop()


async def test_link_follows_a_change_of_its_upstream(
    up: warren.Broker, down: warren.Broker, tmp_path: Path
) -> None:
    async with named_broker("other", tmp_path) as other:
        await begin(down, up)
        bind(down, "x", "q")
        set_upstream(down, "up", other.url)
        await until(lambda: has_key(other, "x", "#"))
        await until(lambda: QUEUE not in up.node.vhosts[V].queues)
        await publish(other.url, "x", "k", b"one")
        assert bodies_of(await take(down.url, "q", 1)) == [b"one"]
        await down.stop()


async def test_link_goes_with_its_exchange_and_comes_with_it(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    down.execute(c.DeleteExchange(vhost=V, name="x"))
    await until(lambda: QUEUE not in up.node.vhosts[V].queues)
    declare_exchange(down, "x")
    await until(lambda: are_running(down, 1))
    assert QUEUE in up.node.vhosts[V].queues


async def test_user_id_is_kept_only_if_it_is_trusted(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    bind(down, "x", "q")
    await until(lambda: has_key(up, "x", "#"))
    await publish(up.url, "x", "k", b"one", user_id="guest")
    (message,) = await take(down.url, "q", 1)
    assert message.user_id is None
    set_upstream(down, "up", up.url, trust_user_id=True)
    await until(lambda: are_running(down, 1) and federation_of(down).all()[0].link.upstream.trust_user_id)
    await publish(up.url, "x", "k", b"two", user_id="guest")
    (message,) = await take(down.url, "q", 1)
    assert message.user_id == "guest"


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
async def test_many_messages_come_once_each_and_in_order(
    up: warren.Broker, down: warren.Broker, ack_mode: str
) -> None:
    await begin(down, up, ack_mode=ack_mode, prefetch_count=10)
    bind(down, "x", "q")
    await until(lambda: has_key(up, "x", "#"))
    bodies = [str(number).encode() for number in range(500)]
    await publish(up.url, "x", "k", *bodies)
    assert bodies_of(await take(down.url, "q", 500)) == bodies
    await until(lambda: not up.node.vhosts[V].queues[QUEUE].unacked)


async def test_internal_exchanges_and_the_default_one_are_not_federated(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up)
    set_upstream(up, "back", down.url)
    federate(up, ".*")
    await until(lambda: are_running(up, len(federation_of(up).all())))
    federated = {running.link.key.place.name for running in federation_of(up).all()}
    assert "x" in federated
    assert not {name for name in federated if name.startswith("federation") or not name}


async def test_upstream_may_be_another_vhost_of_another_broker(
    up: warren.Broker, down: warren.Broker
) -> None:
    up.execute(c.AddVhost(name="v"))
    everything = Permissions(configure=".*", write=".*", read=".*")
    up.execute(c.SetPermissions(user="guest", vhost="v", permissions=everything))
    declare_exchange(down, "x")
    bind(down, "x", "q")
    set_upstream(down, "up", f"{up.url}v")
    federate(down, "^x$")
    await until(lambda: are_running(down, 1))
    assert list(up.node.vhosts["v"].queues) == ["federation: x -> down:/:x"]
    await publish(f"{up.url}v", "x", "k", b"one")
    (message,) = await take(down.url, "q", 1)
    assert received_from(message)[0]["vhost"] == "v"


async def test_links_follow_when_the_cluster_is_renamed(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    down.execute(c.SetGlobalParameter(name="cluster_name", value="renamed"))
    await until(lambda: "federation: x -> renamed" in up.node.vhosts[V].queues)
    await until(lambda: are_running(down, 1))
    assert QUEUE not in up.node.vhosts[V].queues


async def test_nothing_is_watched_unless_a_policy_federates(up: warren.Broker, down: warren.Broker) -> None:
    assert not down.node.events.wants(BindingCreated)
    await begin(down, up)
    assert down.node.events.wants(BindingCreated)
    down.execute(c.DeletePolicy(vhost=V, name="federated"))
    assert not down.node.events.wants(BindingCreated)
    await until(lambda: not federation_of(down).ending)


async def test_ha_policy_is_an_argument_of_the_queue_upstream(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up, ha_policy="all")
    assert up.node.vhosts[V].queues[QUEUE].arguments["x-ha-policy"] == "all"
    set_upstream(down, "up", up.url)
    await until(
        lambda: are_running(down, 1) and "x-ha-policy" not in up.node.vhosts[V].queues[QUEUE].arguments
    )


def channels_to(up: warren.Broker) -> list[int]:
    """How many channels each connection has."""
    return [len(connection.channels) for connection in connections_of(up.node)]


@pytest.mark.parametrize(
    ("mode", "query", "channels"),
    [("multiple", "", 2), ("multiple", "?channel_max=1", 1), ("single", "", 1)],
)
async def test_commands_have_a_channel_of_their_own_if_there_may_be_several(
    up: warren.Broker, down: warren.Broker, mode: str, query: str, channels: int
) -> None:
    declare_exchange(down, "x")
    set_upstream(down, "up", up.url + query, channel_use_mode=mode)
    federate(down, "^x$")
    await until(lambda: are_running(down, 1))
    await until(lambda: channels_to(up) == [channels])
    bind(down, "x", "q", "k")
    await until(lambda: has_key(up, "x", "k"))
    await publish(up.url, "x", "k", b"one")
    assert bodies_of(await take(down.url, "q", 1)) == [b"one"]


@pytest.mark.parametrize("mode", ["multiple", "single"])
async def test_bindings_may_be_made_without_waiting(
    up: warren.Broker, down: warren.Broker, mode: str
) -> None:
    """Also when a link begins anew: the new bindings are there before the old ones go."""
    declare_exchange(down, "x")
    bind(down, "x", "q", "before")
    set_upstream(down, "up", up.url, bind_nowait=True, channel_use_mode=mode)
    federate(down, "^x$")
    await until(lambda: are_running(down, 1) and has_key(up, "x", "before"))
    bind(down, "x", "q", "later")
    await until(lambda: has_key(up, "x", "later"))
    (running,) = federation_of(down).all()
    federation_of(down).restart(running.link.key.id, V)
    await until(lambda: are_running(down, 1) and ("later", f"{QUEUE} B") in bindings_of(up, "x"))
    assert bindings_of(up, "x") == [("before", f"{QUEUE} B"), ("later", f"{QUEUE} B")]


class Written:
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes | memoryview) -> None:
        self.data += bytes(data)

    def methods(self) -> list[ExchangeBind]:
        found, at = [], 0
        while at < len(self.data):
            size = int.from_bytes(self.data[at + 3 : at + 7], "big")
            method = decode_method(self.data[at + 7 : at + 7 + size])
            assert isinstance(method, ExchangeBind)
            found.append(method)
            at += size + 8
        return found

    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_only_the_last_binding_is_answered_if_any(is_awaited: bool) -> None:
    link = RelayLink(parse_uri("amqp://there"), "test")
    link.transport = transport = Written()
    methods = [ExchangeBind(destination="d", source="s", routing_key=key, arguments={}) for key in "abc"]
    asking = asyncio.create_task(ask_all(link, methods, ExchangeBindOk, is_awaited=is_awaited))
    await asyncio.sleep(0)
    assert [method.no_wait for method in transport.methods()] == [True, True, not is_awaited]
    assert asking.done() is not is_awaited
    link.data_received(method_frame(1, ExchangeBindOk()) if is_awaited else b"")
    await asking
    assert not link.ended.done()


async def test_upstream_without_the_type_of_federation_gets_a_fanout(
    up: warren.Broker, down: warren.Broker
) -> None:
    up.node.exchange_types = {
        name: kind for name, kind in up.node.exchange_types.items() if name != "x-federation-upstream"
    }
    await begin(down, up)
    assert up.node.vhosts[V].exchanges[f"{QUEUE} A"].type == "fanout"
    bind(down, "x", "q")
    await until(lambda: has_key(up, "x", "#"))
    round_trip = [{"cluster-name": "down", "vhost": "/"}]
    await publish(up.url, "x", "k", b"was here before", headers={"x-received-from": round_trip})
    await publish(up.url, "x", "k", b"one")
    assert bodies_of(await take(down.url, "q", 1)) == [b"one"]


async def test_a_clean_end_of_a_link_repeats_nothing(up: warren.Broker, down: warren.Broker) -> None:
    """There are always messages whose confirms wait for the disk here."""
    await begin(down, up, prefetch_count=100)
    bind(down, "x", "q")
    await until(lambda: has_key(up, "x", "#"))
    waiting = up.node.vhosts[V].queues[QUEUE]
    bodies = [str(number).encode() for number in range(3000)]
    await put_into(up, waiting, bodies)
    for number in range(1, 4):
        await until(lambda number=number: count_in(down, "q") > 300 * number)  # type: ignore[misc]
        (running,) = federation_of(down).all()
        federation_of(down).restart(running.link.key.id, V)
        await until(lambda: are_running(down, 1))
    await until(lambda: not waiting.unacked and not count_in(up, QUEUE))
    assert count_in(down, "q") == 3000
    assert bodies_of(await take(down.url, "q", 3000)) == bodies


async def test_a_mistake_of_ours_in_cleaning_up_is_told_and_harms_no_other_link(
    up: warren.Broker, down: warren.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(down, up)
    (running,) = federation_of(down).all()
    error, told = KeyError("ours"), list[BaseException]()
    monkeypatch.setattr(running.link, "clean_up", AsyncMock(side_effect=error))
    monkeypatch.setattr(down.world, "report", told.append)
    down.execute(c.DeletePolicy(vhost=V, name="federated"))
    await until(lambda: not federation_of(down).ending)
    assert told == [error]
    federate(down, "^x$")
    await until(lambda: are_running(down, 1))
