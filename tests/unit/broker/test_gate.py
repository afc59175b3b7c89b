"""Messages of a queue whose log holds them back go to nobody before they are safe, whatever the queue's
rules are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_client import FakeClient
from tests.support.machine import Machine
from tests.support.queues import classic
from tests.support.rounds import Rounds
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker.gate import Gate
from warren.broker.internal_queue import DelayQueue
from warren.broker.lane import HELD_MS, Lane


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()
    machine.platter.close()


def hold_back(lane: Lane, rounds: Rounds) -> None:
    """Have the lane's log hold messages back until the test's own rounds are over."""
    assert lane.log is not None
    lane.log.holds_back, lane.log.safety = True, rounds
    lane.take_over(lane.log, lane.position)


def declare(machine: Machine, client: FakeClient, arguments: Table | None = None) -> Rounds:
    """Declare the queue `q`, whose messages are held back."""
    client.send(m.QueueDeclare(queue="q", durable=True, arguments=arguments or {}))
    machine.run()
    client.frames()
    rounds = Rounds()
    for lane in classic(machine.queues["q"]).lanes:
        hold_back(lane, rounds)
    return rounds


def publish(client: FakeClient, *bodies: bytes, **properties: object) -> None:
    for body in bodies:
        client.publish("", "q", body, BasicProperties(delivery_mode=PERSISTENT, **properties))  # type: ignore[arg-type]


def end_round(machine: Machine, rounds: Rounds, number: int = 1) -> None:
    rounds.end(number)
    machine.node.end_turn()
    machine.run()


def test_gate_opens_as_far_as_rounds_are_over() -> None:
    rounds, opened = Rounds(), list[int]()
    gate = Gate(rounds, opened.append)
    for position in (1, 2):
        gate.note(position)
    rounds.begin_next()
    for position in (3, 4):
        gate.note(position)
    assert (len(rounds.waiting[1]), len(rounds.waiting[2]), opened) == (1, 1, [])
    rounds.end(1)
    assert opened == [2]
    rounds.begin_next()
    gate.note(5)
    rounds.end(2)
    rounds.end(3)
    assert opened == [2, 4, 5]


def test_consumer_gets_only_what_is_safe(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    client.consume("q", no_ack=True)
    publish(client, b"1", b"2")
    rounds.begin_next()
    publish(client, b"3")
    machine.run()
    assert client.bodies() == []
    end_round(machine, rounds, 1)
    assert client.bodies() == [b"1", b"2"]
    end_round(machine, rounds, 2)
    assert client.bodies() == [b"3"]


def test_what_waits_behind_the_ready_entries_is_held_back_as_well(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    bodies = [b"%d" % number for number in range(300)]
    publish(client, *bodies[:200])
    rounds.begin_next()
    publish(client, *bodies[200:])
    machine.run()
    client.consume("q", no_ack=True)
    machine.run()
    assert client.bodies() == []
    end_round(machine, rounds, 1)
    assert client.bodies() == bodies[:200]
    end_round(machine, rounds, 2)
    assert client.bodies() == bodies[200:]


def test_get_finds_nothing_that_is_not_safe(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    publish(client, b"1")
    client.call(m.BasicGet(queue="q", no_ack=True), m.BasicGetEmpty)
    end_round(machine, rounds)
    client.send(m.BasicGet(queue="q", no_ack=True))
    assert client.bodies() == [b"1"]


def test_higher_priority_that_is_not_safe_keeps_no_lower_one_waiting(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client, {"x-max-priority": 5})
    publish(client, b"low", priority=1)
    rounds.begin_next()
    publish(client, b"high", priority=5)
    client.consume("q", no_ack=True)
    end_round(machine, rounds, 1)
    assert client.bodies() == [b"low"]
    end_round(machine, rounds, 2)
    assert client.bodies() == [b"high"]


def test_message_that_was_returned_goes_out_again_before_later_ones_are_safe(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    publish(client, b"1")
    end_round(machine, rounds, 1)
    client.consume("q")
    assert client.bodies() == [b"1"]
    rounds.begin_next()
    publish(client, b"2")
    client.send(m.BasicNack(delivery_tag=1, requeue=True))
    machine.run()
    assert client.bodies() == [b"1"]


@pytest.mark.parametrize("arguments", [{"x-browse": True}, {"x-selector": "number > 0"}])
def test_choosy_consumer_sees_only_what_is_safe(machine: Machine, arguments: Table) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    no_ack = "x-browse" not in arguments
    client.send(m.BasicConsume(queue="q", consumer_tag="c", no_ack=no_ack, arguments=arguments))
    for number in (1, 2):
        publish(client, b"%d" % number, headers={"number": number})
        rounds.begin_next()
    machine.run()
    assert client.bodies() == []
    end_round(machine, rounds, 1)
    assert client.bodies() == [b"1"]
    end_round(machine, rounds, 2)
    assert client.bodies() == [b"2"]


def test_group_goes_on_when_its_next_message_is_safe(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client, {"x-group-header": "group"})
    client.consume("q", no_ack=True)
    for name in ("a", "b", "a"):
        publish(client, name.encode(), headers={"group": name})
        rounds.begin_next()
    machine.run()
    assert client.bodies() == []
    for number, group in enumerate((b"a", b"b", b"a"), 1):
        end_round(machine, rounds, number)
        assert client.bodies() == [group]


def test_length_limit_drops_no_message_that_is_not_safe(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client, {"x-max-length": 1})
    publish(client, b"1", b"2")
    machine.run()
    assert machine.queues["q"].message_count == 2
    end_round(machine, rounds)
    assert machine.queues["q"].message_count == 1
    client.send(m.BasicGet(queue="q", no_ack=True))
    assert client.bodies() == [b"2"]


@pytest.mark.parametrize("count", [1, 200])
def test_message_that_expires_before_it_is_safe_leaves_when_it_is(machine: Machine, count: int) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    publish(client, *[b"x"] * count, expiration="1")
    machine.pass_time(1)
    assert machine.queues["q"].message_count == count
    end_round(machine, rounds)
    machine.pass_time(2 * HELD_MS / 1000)
    assert machine.queues["q"].message_count == 0


def test_message_with_a_ttl_of_0_reaches_a_consumer_that_waits(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client, {"x-message-ttl": 0})
    client.consume("q", no_ack=True)
    publish(client, b"1")
    machine.run()
    end_round(machine, rounds)
    assert client.bodies() == [b"1"]


def test_delayed_message_is_routed_only_when_it_is_safe(machine: Machine) -> None:
    client = machine.connect()
    client.send(
        m.ExchangeDeclare(
            exchange="x", type="x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
    )
    client.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    client.send(m.QueueBind(queue="q", exchange="x", arguments={}))
    machine.run()
    [waiting] = [queue for queue in machine.node.vhosts["/"].all_queues() if isinstance(queue, DelayQueue)]
    rounds = Rounds()
    hold_back(waiting.lane, rounds)
    properties = BasicProperties(delivery_mode=PERSISTENT, headers={"x-delay": 1})
    client.publish("x", "", b"late", properties)
    machine.pass_time(1)
    assert machine.queues["q"].message_count == 0
    end_round(machine, rounds)
    machine.pass_time(2 * HELD_MS / 1000)
    assert machine.queues["q"].message_count == 1


def test_publisher_is_told_when_nobody_can_say_any_more_what_is_safe(machine: Machine) -> None:
    client, other = machine.connect(confirming=True), machine.connect(confirming=True)
    rounds = declare(machine, client)
    machine.queues["q"].safety = rounds
    publish(client, b"1")
    machine.run()
    rounds.end_term()
    machine.node.end_turn()
    assert "another leader" in client.expect_close(405).reply_text
    assert other.methods() == [], "it waits for nothing"


def test_who_commits_a_transaction_is_told_as_well(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    machine.queues["q"].safety = rounds
    client.call(m.TxSelect(), m.TxSelectOk)
    publish(client, b"1")
    client.send(m.TxCommit())
    machine.run()
    assert client.methods() == [], "the commit waits"
    client.connection.safety_ended(rounds, "the queue has another leader")
    machine.node.end_turn()
    assert "another leader" in client.expect_close(405).reply_text


def test_purge_and_delete_take_what_is_not_safe_with_them(machine: Machine) -> None:
    client = machine.connect()
    rounds = declare(machine, client)
    publish(client, b"1", b"2")
    assert client.call(m.QueuePurge(queue="q"), m.QueuePurgeOk).message_count == 2
    publish(client, b"3")
    client.send(m.QueueDelete(queue="q"))
    machine.run()
    end_round(machine, rounds)
    assert "q" not in machine.queues


def test_stray_that_is_all_that_waits_goes_out(machine: Machine) -> None:
    """It was taken from behind and came back, and all messages before it have gone meanwhile."""
    client = machine.connect()
    rounds = declare(machine, client, {"x-max-length": 1_000})
    for number in range(100):
        properties = BasicProperties(delivery_mode=PERSISTENT, headers={"number": number})
        client.publish("", "q", b"%d" % number, properties)
    machine.run()
    rounds.end(1)
    machine.run()
    choosy, taker = machine.connect(), machine.connect()
    choosy.send(m.BasicConsume(queue="q", consumer_tag="c", arguments={"x-selector": "number = 99"}))
    machine.run()
    assert choosy.bodies() == [b"99"]
    choosy.hang_up()
    taker.consume("q")
    machine.run()
    assert taker.bodies() == [b"%d" % number for number in range(100)]
