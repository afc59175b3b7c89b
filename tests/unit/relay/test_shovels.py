"""Shovels between brokers: every message arrives as it was, once and in order, whatever breaks meanwhile."""

from __future__ import annotations

import socket

import pytest

from tests.support.process import Address
from tests.support.proxy import proxy_to
from tests.unit.relay.yard import Yard, taken
from warren import commands
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Table
from warren.broker.access import Permissions
from warren.broker.events import ConnectionClosed
from warren.broker.parameters import Json
from warren.relay.service import RelayName
from warren.relay.supervisor import State
from warren.session.connection import connections_of

BODIES = [b"%d" % number for number in range(2500)]


def bodies_in(yard: Yard, queue: str = "q") -> list[bytes]:
    return [message.body for message in taken(yard.there.node.vhosts["/"].queues[queue])]


async def arrived(yard: Yard, count: int, queue: str = "q") -> None:
    queues = yard.there.node.vhosts["/"].queues
    await yard.until(lambda: queue in queues and queues[queue].length() == count)


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("prefetch", [1, 100, 1000])
async def test_all_messages_arrive_in_order(yard: Yard, ack_mode: str, prefetch: int) -> None:
    source = yard.queue(yard.here)
    bodies = BODIES[: 50 * prefetch]
    await yard.publish(yard.here, source, bodies)
    yard.shovel(
        src_uri="amqp://",
        src_queue="q",
        dest_uri=yard.uri(yard.there),
        dest_queue="q",
        ack_mode=ack_mode,
        src_prefetch_count=prefetch,
    )
    await arrived(yard, len(bodies))
    assert bodies_in(yard) == bodies
    await yard.until(lambda: source.length() == source.unacked == 0)


@pytest.mark.parametrize("body", [b"", b"x", b"y" * 200_000, b"z" * 1_500_000])
async def test_bodies_and_properties_are_byte_for_byte(yard: Yard, body: bytes) -> None:
    headers: Table = {"text": "t", "number": 5, "nested": {"list": [1, None, True]}, "bytes": b"\0\xff"}
    properties = {"headers": headers, "message_id": "m", "priority": 3, "timestamp": 1_700_000_000}
    source = yard.queue(yard.there, "from")
    await yard.publish(yard.there, source, [body], **properties)
    yard.queue(yard.here, "to")
    yard.shovel(src_uri=yard.uri(yard.there), src_queue="from", dest_uri="amqp://", dest_queue="to")
    target = yard.here.node.vhosts["/"].queues["to"]
    await yard.until(lambda: target.length() == 1)
    [got] = taken(target)
    sent = BasicProperties(delivery_mode=2, **properties).encode()  # type: ignore[arg-type]
    assert (got.body, got.properties, got.persistent) == (body, sent, True)


async def test_a_message_goes_to_its_own_exchange_and_key_if_no_other_is_named(yard: Yard) -> None:
    yard.queue(yard.there)
    source = yard.queue(yard.here)
    await yard.publish(yard.here, source, [b"1"])
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=yard.uri(yard.there))
    await arrived(yard, 1)


async def test_from_an_exchange_to_an_exchange_with_another_key(yard: Yard) -> None:
    yard.queue(yard.there)
    yard.there.execute(
        commands.Bind(vhost="/", source="amq.direct", destination="q", to_queue=True, routing_key="new")
    )
    yard.shovel(
        src_uri=yard.uri(yard.here),
        src_exchange="amq.topic",
        src_exchange_key="orders.#",
        dest_uri=yard.uri(yard.there),
        dest_exchange="amq.direct",
        dest_exchange_key="new",
    )
    await yard.until(lambda: yard.status().state is State.RUNNING)
    vhost = yard.here.node.vhosts["/"]
    await yard.until(lambda: any(queue.consumers for queue in vhost.all_queues()))
    [queue] = vhost.all_queues()
    await yard.publish(yard.here, queue, [b"1", b"2"])
    await arrived(yard, 2)
    assert bodies_in(yard) == [b"1", b"2"]


async def test_queues_that_are_not_there_are_declared(yard: Yard) -> None:
    yard.shovel(
        src_uri="amqp://",
        src_queue="from",
        src_queue_args={"x-queue-type": "quorum"},
        dest_uri=yard.uri(yard.there),
        dest_queue="to",
    )
    await yard.until(lambda: yard.status().state is State.RUNNING)
    assert yard.here.node.vhosts["/"].queues["from"].arguments == {"x-queue-type": "quorum"}
    assert yard.there.node.vhosts["/"].queues["to"].durable


async def test_a_stream_is_read_from_an_offset(yard: Yard) -> None:
    stream = yard.queue(yard.here, queue_type="stream")
    await yard.publish(yard.here, stream, BODIES[:100])
    yard.shovel(
        src_uri="amqp://",
        src_queue="q",
        src_consumer_args={"x-stream-offset": 40},
        dest_uri=yard.uri(yard.there),
        dest_queue="q",
    )
    await arrived(yard, 60)
    assert bodies_in(yard) == BODIES[40:100]


@pytest.mark.parametrize(("after", "left"), [("queue-length", 0), (30, 70), (0, 100), (100, 0)])
async def test_a_shovel_is_deleted_after_so_many_messages(yard: Yard, after: Json, left: int) -> None:
    source = yard.queue(yard.here)
    await yard.publish(yard.here, source, BODIES[:100])
    name = yard.shovel(
        src_uri="amqp://",
        src_queue="q",
        dest_uri=yard.uri(yard.there),
        dest_queue="q",
        src_delete_after=after,
    )
    await yard.until(lambda: name not in yard.relays.shovels)
    await yard.until(lambda: source.unacked == 0)
    assert yard.here.node.parameters.of_vhost("/") == {}
    assert source.length() == left
    if left < 100:
        assert bodies_in(yard) == BODIES[: 100 - left]


async def test_forward_headers_tell_of_the_shovel_and_not_of_passwords(yard: Yard) -> None:
    source = yard.queue(yard.here)
    await yard.publish(yard.here, source, [b"1"], headers={"mine": 1})
    yard.shovel(
        src_uri="amqp://",
        src_queue="q",
        dest_uri=yard.uri(yard.there),
        dest_queue="q",
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"app_id": "shovelled", "delivery_mode": 2},
    )
    await arrived(yard, 1)
    [message] = taken(yard.there.node.vhosts["/"].queues["q"])
    properties = decode_properties(message.properties)
    headers = properties.headers or {}
    assert properties.app_id == "shovelled"
    assert headers["mine"] == 1
    assert isinstance(headers["x-shovelled-timestamp"], int)
    assert headers["x-shovelled"] == [
        {
            "shovelled-by": yard.here.node.cluster_name,
            "shovel-type": "dynamic",
            "shovel-name": "s",
            "shovel-vhost": "/",
            "src-uri": "amqp://",
            "dest-uri": f"amqp://{yard.there.address}",
            "src-queue": "q",
            "dest-queue": "q",
        }
    ]


async def test_the_next_uri_is_tried_when_one_fails(yard: Yard) -> None:
    source = yard.queue(yard.here)
    await yard.publish(yard.here, source, BODIES[:10])
    yard.shovel(
        src_uri="amqp://",
        src_queue="q",
        dest_uri=["amqp://127.0.0.1:1", yard.uri(yard.there)],
        dest_queue="q",
        reconnect_delay=0.01,
    )
    await arrived(yard, 10)


async def test_status_has_the_reason_of_a_failure(yard: Yard) -> None:
    yard.shovel(
        src_uri="amqp://", src_queue="q", dest_uri="amqp://guest:wrong@127.0.0.1:1", reconnect_delay=0
    )
    await yard.until(lambda: yard.status().state is State.TERMINATED)
    assert yard.status().reason.startswith("destination: cannot connect to 127.0.0.1:1: ")


async def test_a_wrong_password_is_a_reason(yard: Yard) -> None:
    uri = yard.uri(yard.there).replace("guest:guest", "guest:wrong")
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=uri, reconnect_delay=0)
    await yard.until(lambda: yard.status().state is State.TERMINATED)
    assert yard.status().reason.startswith("destination: the broker closed the connection: 403 ")
    assert "wrong" not in yard.status().reason


async def test_a_destination_that_comes_back_gets_the_rest(yard: Yard) -> None:
    source = yard.queue(yard.here)
    await yard.publish(yard.here, source, BODIES)
    uri, port = yard.uri(yard.there), int(yard.there.address.rpartition(":")[2])
    yard.shovel(
        src_uri="amqp://",
        src_queue="q",
        dest_uri=uri,
        dest_queue="q",
        src_prefetch_count=10,
        reconnect_delay=0.05,
    )
    queues = yard.there.node.vhosts["/"].queues
    await yard.until(lambda: "q" in queues and queues["q"].length() > 20)
    await yard.there.stop()
    yard.there = yard.make("there", port)
    await yard.there.start()
    await yard.until(lambda: source.length() == source.unacked == 0)
    got = bodies_in(yard)
    assert set(got) == set(BODIES)
    assert len(got) - len(BODIES) <= 10  # at most what was on its way arrives twice
    assert [body for at, body in enumerate(got) if body not in got[:at]] == BODIES


async def test_what_the_destination_refuses_goes_back(yard: Yard) -> None:
    source = yard.queue(yard.here)
    full = yard.queue(yard.there, max_length=3, overflow="reject-publish")
    await yard.publish(yard.here, source, BODIES[:10])
    yard.shovel(
        src_uri="amqp://", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="q", src_prefetch_count=1
    )
    supervised = yard.relays.shovels[RelayName("/", "s")]
    await yard.until(lambda: full.length() == 3 and supervised.status.state is State.RUNNING)
    await yard.until(lambda: source.length() + source.unacked == 7)
    for _ in range(7):
        full.get(no_ack=True)
        await yard.until(lambda: full.length() == 3 or source.length() + source.unacked == 0)
    assert supervised.status.state is State.RUNNING


async def test_an_alarm_at_the_destination_holds_the_shovel(yard: Yard) -> None:
    source = yard.queue(yard.here)
    yard.queue(yard.there)
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="q")
    await yard.until(lambda: yard.status().state is State.RUNNING)
    yard.there.resources.raise_disk_alarm()
    await yard.publish(yard.here, source, BODIES[:50])
    await yard.until(lambda: source.unacked == 50)
    assert yard.there.node.vhosts["/"].queues["q"].length() == 0
    yard.there.resources.check()  # there is room
    await arrived(yard, 50)


async def test_a_parameter_that_changes_restarts_the_shovel_and_one_that_goes_ends_it(yard: Yard) -> None:
    source = yard.queue(yard.here)
    name = yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="a")
    await yard.until(lambda: yard.status().state is State.RUNNING)
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="b")
    await yard.publish(yard.here, source, BODIES[:5])
    await arrived(yard, 5, "b")
    await yard.until(lambda: source.length() == source.unacked == 0)
    yard.here.execute(commands.ClearParameter(vhost="/", component="shovel", name="s"))
    assert name not in yard.relays.shovels
    await yard.until(lambda: not source.consumers)
    await yard.publish(yard.here, source, [b"stays"])
    assert source.length() == 1


async def test_shovels_come_back_with_their_broker(yard: Yard) -> None:
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="q")
    await yard.until(lambda: yard.status().state is State.RUNNING)
    await yard.here.stop()
    yard.here = yard.make("here")
    await yard.here.start()
    await yard.until(lambda: yard.status().state is State.RUNNING)
    source = yard.here.node.vhosts["/"].queues["q"]
    await yard.publish(yard.here, source, BODIES[:5])
    await arrived(yard, 5)


async def test_a_shovel_may_do_nothing_in_another_vhost_unless_it_logs_in(yard: Yard) -> None:
    yard.here.execute(commands.AddVhost(name="other"))
    yard.shovel(src_uri="amqp:///other", src_queue="q", dest_uri=yard.uri(yard.there), reconnect_delay=0)
    await yard.until(lambda: yard.status().state is State.TERMINATED)
    assert "access to vhost 'other' refused" in yard.status().reason
    everything = Permissions(".*", ".*", ".*")
    yard.here.execute(commands.SetPermissions(user="guest", vhost="other", permissions=everything))
    yard.shovel(
        src_uri="amqp://guest:guest@/other", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="q"
    )
    await yard.until(lambda: yard.status().state is State.RUNNING)


async def test_a_wrong_definition_is_refused(yard: Yard) -> None:
    with pytest.raises(PreconditionFailed, match="src-uri should be an AMQP URI"):
        yard.shovel(src_queue="q", dest_uri="amqp://")
    assert yard.relays.shovels == {}


async def test_deduplication_at_the_destination_drops_what_comes_twice(yard: Yard) -> None:
    """On-confirm repeats at most what was on its way; with deduplication nothing is in the queue twice."""
    source = yard.queue(yard.here)
    yard.queue(yard.there, message_deduplication=True)
    for number in range(20):
        header: dict[str, object] = {"x-deduplication-header": str(number)}
        await yard.publish(yard.here, source, [b"%d" % number] * 2, headers=header)
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="q")
    await yard.until(lambda: source.length() == source.unacked == 0)
    assert bodies_in(yard) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("way", ["restart", "change", "delete", "stop"])
async def test_a_clean_end_repeats_nothing(yard: Yard, way: str) -> None:
    """The destination is far away, so that there are always messages whose confirms are yet to come."""
    source, target = yard.queue(yard.here), yard.queue(yard.there)
    await yard.publish(yard.here, source, BODIES)
    host, _, port = yard.there.address.rpartition(":")
    async with proxy_to(Address(host, int(port)), delay_seconds=0.02) as far:
        definition: dict[str, Json] = {
            "src_uri": "amqp://",
            "src_queue": "q",
            "dest_uri": far.address.url(),
            "dest_queue": "q",
            "src_prefetch_count": 200,
        }
        name = yard.shovel(**definition)
        for ends in range(1, 4):
            await yard.until(lambda ends=ends: target.length() > 300 * ends)  # type: ignore[misc]
            if way == "restart":
                yard.relays.restart(name)
            elif way == "change":
                yard.shovel(**definition, src_consumer_args={"number": ends})
            elif way == "delete":
                yard.here.execute(commands.ClearParameter(vhost="/", component="shovel", name="s"))
                await yard.until(lambda: not yard.relays.ending)
                yard.shovel(**definition)
            else:
                await yard.here.stop()
                yard.here = yard.make("here")
                await yard.here.start()
                source = yard.here.node.vhosts["/"].queues["q"]
        await yard.until(lambda: source.length() == source.unacked == 0)
        assert bodies_in(yard) == BODIES
        await yard.here.stop()


async def test_a_shovel_that_is_changed_begins_when_the_one_before_has_ended(yard: Yard) -> None:
    """The one before is slow to end, since its confirms come from far away."""
    source = yard.queue(yard.here)
    yard.queue(yard.there)
    definition: dict[str, Json] = {"src_uri": "amqp://", "src_queue": "q", "dest_queue": "q"}
    host, _, port = yard.there.address.rpartition(":")
    async with proxy_to(Address(host, int(port)), delay_seconds=0.2) as far:
        yard.shovel(**definition, dest_uri=far.address.url())
        await yard.until(lambda: yard.status().state is State.RUNNING)
        await yard.publish(yard.here, source, BODIES[:50])
        await yard.until(lambda: source.unacked == 50)
        for number in range(3):  # faster than a shovel can end
            args: Json = {"number": number}
            yard.shovel(**definition, dest_uri=yard.uri(yard.there), src_consumer_args=args)
            assert yard.status().state is State.STARTING
        await yard.until(lambda: yard.status().state is State.RUNNING)
        assert not yard.relays.ending
        assert len(source.consumers) == 1
        await yard.publish(yard.here, source, BODIES[50:60])
        await arrived(yard, 60)
        assert bodies_in(yard) == BODIES[:60]
        await yard.here.stop()


@pytest.mark.parametrize("end", ["src", "dest"])
async def test_a_queue_that_is_to_be_there_before_is_waited_for(yard: Yard, end: str) -> None:
    where = {"src": (yard.here, "from"), "dest": (yard.there, "to")}
    yard.shovel(
        src_uri="amqp://",
        src_queue="from",
        dest_uri=yard.uri(yard.there),
        dest_queue="to",
        reconnect_delay=0.05,
        **{f"{end}_predeclared": True},
    )
    await yard.until(lambda: yard.status().state is State.TERMINATED)
    broker, queue = where[end]
    assert f"no queue '{queue}'" in yard.status().reason
    assert yard.status().reason.startswith({"src": "source: ", "dest": "destination: "}[end])
    assert queue not in broker.node.vhosts["/"].queues
    yard.queue(broker, queue)
    await yard.until(lambda: yard.status().state is State.RUNNING)


async def test_broker_that_closes_the_channel_hears_of_the_end(yard: Yard) -> None:
    """And need not log that the connection broke, each time that the shovel tries again."""
    yard.queue(yard.here, "from")
    reasons: list[str] = []
    yard.there.subscribe(ConnectionClosed, lambda event: reasons.append(event.reason))
    yard.shovel(
        src_uri="amqp://",
        src_queue="from",
        dest_uri=yard.uri(yard.there),
        dest_queue="absent",
        dest_predeclared=True,
        reconnect_delay=0,
    )
    await yard.until(lambda: bool(reasons))
    assert reasons == ["client closed: 200 the relay ends"]


async def test_what_a_uri_asks_for_is_agreed_on(yard: Yard) -> None:
    uri = yard.uri(yard.there) + "?heartbeat=7&channel_max=9&frame_max=5000&auth_mechanism=amqplain"
    source = yard.queue(yard.here)
    large = b"x" * 20_000
    await yard.publish(yard.here, source, [large])
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=uri, dest_queue="q")
    await arrived(yard, 1)
    [connection] = connections_of(yard.there.node)
    assert (connection.liveness.interval_seconds, connection.channel_max) == (7, 9)
    assert (connection.frame_max, connection.mechanism) == (5000, "AMQPLAIN")
    assert bodies_in(yard) == [large]


async def test_no_heartbeats_are_agreed_on_within_the_process(yard: Yard) -> None:
    """A broker that was stopped for some minutes would take itself for dead when it goes on."""
    yard.shovel(src_uri="amqp://?heartbeat=7", src_queue="q", dest_uri=yard.uri(yard.there), dest_queue="q")
    await yard.until(lambda: yard.status().state is State.RUNNING)
    [within] = connections_of(yard.here.node)
    [over_a_socket] = connections_of(yard.there.node)
    assert (within.liveness.interval_seconds, over_a_socket.liveness.interval_seconds) == (0, 10)


async def test_time_to_connect_is_that_of_the_uri(yard: Yard) -> None:
    """A listener that nobody accepts from: a connection is made, and its TLS handshake never answered."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"amqps://127.0.0.1:{silent.getsockname()[1]}?connection_timeout=50"
        yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=uri, reconnect_delay=0)
        await yard.until(lambda: yard.status().state is State.TERMINATED)
    assert yard.status().reason.endswith("no answer within 0.05 s")


async def test_a_shovel_of_another_protocol_is_kept_and_says_why_it_does_not_run(yard: Yard) -> None:
    name = yard.shovel(
        src_protocol="amqp10", src_uri="amqp://there", src_address="/queue/q", dest_uri="amqp://"
    )
    await yard.until(lambda: yard.status().state is State.TERMINATED)
    assert yard.status().reason == "shovel 's': src-protocol is AMQP 1.0, which is not spoken here"
    yard.relays.restart(name)
    await yard.until(lambda: yard.status().state is State.TERMINATED)
