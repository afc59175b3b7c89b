"""Shovels between brokers: every message arrives as it was, once and in order, whatever breaks meanwhile."""

from __future__ import annotations

import pytest

from tests.unit.relay.yard import Yard, taken
from warren import commands
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Table
from warren.broker.access import Permissions
from warren.broker.parameters import Json
from warren.relay.service import RelayName
from warren.relay.supervisor import State

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
    assert yard.status().reason.startswith("cannot connect to 127.0.0.1:1: ")


async def test_a_wrong_password_is_a_reason(yard: Yard) -> None:
    uri = yard.uri(yard.there).replace("guest:guest", "guest:wrong")
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=uri, reconnect_delay=0)
    await yard.until(lambda: yard.status().state is State.TERMINATED)
    assert "403" in yard.status().reason
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
